SELECT row_number() OVER (PARTITION BY kind ORDER BY at_ms) FROM event GROUP BY 1 HAVING count(*) > 0 /* 
