"""Study storages that are away for a moment: a database that restarts, a proxy that drops what was idle.

A sweep of a week meets such moments. What a driver writes to its study can be written twice, so it is tried again for as long
as a restart takes; what the storage still refuses then is trouble.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

PAUSES_S = (0.1, 1.0, 3.0, 10.0, 30.0)
"""Between one try and the next."""
_DRIVERS = ("sqlalchemy", "psycopg", "psycopg2", "pymysql", "MySQLdb", "sqlite3", "redis")


def is_of_storage(error: BaseException) -> bool:
    """Return True for what Optuna's storages and the drivers of their databases raise."""
    return type(error).__module__.split(".")[0] in ("optuna", *_DRIVERS)


def persistently(write: Callable[[], object], pauses_s: Sequence[float] | None = None) -> None:
    """Call ``write`` until the storage takes it, with :data:`PAUSES_S` between the tries; the last one's error is raised.

    Errors that another try cannot mend are raised at once. ``write`` may be called again after it has had its effect.
    """
    for pause_s in PAUSES_S if pauses_s is None else pauses_s:
        try:
            write()
            return
        except Exception as error:
            if not _may_pass(error):
                raise
        time.sleep(pause_s)
    write()


def _may_pass(error: Exception) -> bool:
    kind = type(error)
    return kind.__module__.split(".")[0] in _DRIVERS or kind.__name__ == "StorageInternalError"
