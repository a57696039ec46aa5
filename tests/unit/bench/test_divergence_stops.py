from __future__ import annotations

import numpy as np
import pandas as pd

from bench.divergence_stops import fates, main, row

T = np.arange(1, 51) / 50


def file_of(folder, **losses):
    """Write runs of one group, named and with values as given; return the file."""
    tables = [
        pd.DataFrame(
            {"run_id": name, "family": "f", "group": "g", "step": 10 * np.arange(1, 51), "total_steps": 500, "val_loss": values}
        )
        for name, values in losses.items()
    ]
    pd.concat(tables).to_parquet(folder / "runs.parquet")
    return folder / "runs.parquet"


def falling(final):
    return final * (1 + 0.3 * (T**-0.3 - 1))


def test_a_run_that_rises_is_told_from_one_that_comes_back_best(tmp_path, capsys):
    healthy = {f"healthy {i}": falling(3.0 + 0.1 * i) for i in range(8)}
    back = falling(2.0)
    back[20:26] *= 3
    path = file_of(tmp_path, **healthy, rises=falling(3.0) * (1 + 2 * (T > 0.5)), back=back)
    found = list(fates(path, "val_loss"))
    assert {f.stopped_at is not None for f in found[:8]} == {False}
    assert 0.5 < found[8].stopped_at < 0.6
    assert 0.4 < found[9].stopped_at < 0.5
    assert row(found) == (10, 2, 1, 1)
    assert main(["--curves", str(tmp_path)]) == 0
    assert "| runs | val_loss | 10 | 2 | 1 | 1 |" in capsys.readouterr().out
