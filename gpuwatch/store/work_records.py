"""The records of works in the ledger: the newest VALID windows of each work, by user, source and digest of the work key."""

from annotate.evidence import RecordedWindow
from gpuwatch.interfaces import Run
from gpuwatch.store.database import Database
from gpuwatch.store.run import as_json

WINDOWS_COUNT = 32  # windows per record: a judgement needs five, and old windows may no longer apply
RECORDS_COUNT = 4096  # records of all users: with 32 windows of some 250 bytes each, 33 MB

EARLIER = """SELECT numbers FROM recorded_windows JOIN work_records ON work_records.id = record
    WHERE uid = ? AND source = ? AND work = ? AND run < ? ORDER BY run"""
_OLDEST = """SELECT id FROM work_records WHERE uid = (SELECT uid FROM work_records GROUP BY uid ORDER BY count(*) DESC, uid LIMIT 1)
    ORDER BY latest LIMIT 1"""


def put(db: Database, run: Run, work: str, window: RecordedWindow) -> None:
    """Add a run's numbers to a record within the caller's transaction; drop the oldest windows and records."""
    (record,) = db.execute(
        """INSERT INTO work_records (uid, source, work, latest) VALUES (?, ?, ?, ?)
        ON CONFLICT DO UPDATE SET latest = max(latest, excluded.latest) RETURNING id""",
        (run.uid, run.source, work, run.id),
    ).fetchone()
    db.execute("INSERT OR REPLACE INTO recorded_windows VALUES (?, ?, ?)", (record, run.id, as_json(window)))
    kept = "SELECT run FROM recorded_windows WHERE record = ? ORDER BY run DESC LIMIT ?"
    db.execute(f"DELETE FROM recorded_windows WHERE record = ? AND run NOT IN ({kept})", (record, record, WINDOWS_COUNT))  # noqa: S608 - a constant
    _bound(db)


def _bound(db: Database) -> None:
    """Drop the least recently used record of the user with the most records, so that no user displaces another's."""
    while db.execute("SELECT count(*) FROM work_records").fetchone()[0] > RECORDS_COUNT:
        (oldest,) = db.execute(_OLDEST).fetchone()
        db.execute("DELETE FROM recorded_windows WHERE record = ?", (oldest,))
        db.execute("DELETE FROM work_records WHERE id = ?", (oldest,))
