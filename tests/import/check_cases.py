"""Tables of backends that others published, where they lie beside the checkout (../shared/cases/tables): the winner is the one that
EXPECTED.csv names, and where it names none there is none.

check_cases.py NCCLTUNE SOURCE
"""
import csv
import pathlib
import subprocess
import sys
import tempfile

NONE = ("tie", "no_winner")
NAMED = ("winner", "not_credible")  # the second one named too, with the doubt: it rests on a spike of the other
SKIP = 77


def tables_beside(source):
    for folder in (source, *source.parents):
        found = folder / "shared/cases/tables"
        if (found / "EXPECTED.csv").is_file():
            return found
    return None


def verdicts(program, path):
    """{(size, group): row} as `import table` judges it."""
    with tempfile.TemporaryDirectory() as folder:
        got = subprocess.run([program, "import", "table", path, "--dry-run", "--format", "csv", "--db", f"{folder}/x.db"], capture_output=True,
                             text=True, check=True)
    return list(csv.DictReader(got.stdout.splitlines()))


def disagrees(want, rows):
    """In what a table's verdicts differ from an expected row; None: they agree."""
    mine = [r for r in rows if r["size_bytes"] == want["size_bytes"] and f"{want['ranks']} ranks" in r["group"] and want["gpus"] in r["group"]]
    if len(mine) != 1:
        return f"{len(mine)} rows of ours"
    mine = mine[0]
    if want["verdict"] != "by_numbers":
        return None if mine["verdict"] in NONE else f"names {mine['best']} ({mine['verdict']})"
    if mine["verdict"] not in NAMED or (mine["best"], mine["second"]) != (want["best"], want["second"]):
        return f"{mine['best']} over {mine['second']} ({mine['verdict']}), not {want['best']} over {want['second']}"
    return None if abs(float(mine["margin_pct"]) - float(want["margin_pct"])) < 0.11 else f"by {mine['margin_pct']} %"


def main(program, source):
    folder = tables_beside(pathlib.Path(source).resolve())
    if folder is None:
        print("no shared/cases/tables beside the checkout")
        return SKIP
    known, seen, bad = {}, {"by_numbers": 0, "none": 0}, 0
    for path in folder.glob("T*.csv"):
        known[path.name.partition("-")[0]] = verdicts(program, path)
    with open(folder / "EXPECTED.csv", encoding="utf-8", newline="") as f:
        for want in csv.DictReader(f):
            seen["by_numbers" if want["verdict"] == "by_numbers" else "none"] += 1
            why = disagrees(want, known.get(want["table"], []))
            if why is not None:
                bad += 1
                print(f"{want['table']} {want['size_bytes']} B, {want['ranks']} ranks, {want['gpus']}: {why}")
            # What names another, or names one where there is none, must not pass.
            wrong = dict(want, best=want["second"], second=want["best"]) if want["verdict"] == "by_numbers" else dict(want, verdict="by_numbers")
            if disagrees(wrong, known.get(want["table"], [])) is None:
                bad += 1
                print(f"{want['table']} {want['size_bytes']} B: the opposite passes too")
    doubted = [r for rows in known.values() for r in rows if r["verdict"] == "not_credible"]
    for r in doubted:
        print(f"doubted: {pathlib.Path(r['table']).name} {r['size_bytes']} B: {r['why']}")
    if len(doubted) * 20 > sum(map(len, known.values())):
        bad += 1
        print("more than one in twenty winners is doubted")
    print(f"{len(known)} tables; {seen['by_numbers']} winners named, {seen['none']} times none; {bad} disagree")
    return 0 if not bad and all(seen.values()) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
