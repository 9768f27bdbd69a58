/* style - the style sheets, embedded from the .css files beside. */
#pragma once

extern const char nt_plot_css[];
extern const char nt_page_css[];
