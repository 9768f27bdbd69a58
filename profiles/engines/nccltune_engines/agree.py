"""All ranks of a group use the table, or none does.

Over the store that the process group met through, not by a collective: a rank without the plugin would leave a
collective waiting for ever. Each rank writes what it has; whoever has seen all of them, or waited too long, tries to
write the verdict, and the first verdict written is everybody's (the store compares and sets as one step).
"""
import datetime

PATIENCE_S = 30


def agree(store, key, rank, world, mine, patience_s=PATIENCE_S):
    """"on", or "off: <reason>": the same on every rank that asks."""
    base = f"nccltune/{key}"
    store.set(f"{base}/{rank}", mine)
    names = [f"{base}/{r}" for r in range(world)]
    try:
        store.wait(names, datetime.timedelta(seconds=patience_s))
        told = [store.get(n).decode() for n in names]
        other = next((r for r, t in enumerate(told) if t != told[0]), None)
        verdict = "on" if other is None else f"off: rank 0 has {told[0]}, rank {other} has {told[other]}"
    except RuntimeError:  # DistStoreError is one
        verdict = f"off: not all of {world} ranks asked within {patience_s} s; is the plugin installed for each?"
    return store.compare_set(f"{base}/verdict", "", verdict).decode()
