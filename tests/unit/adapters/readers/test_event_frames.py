"""Event files read all at once say what the package says record by record."""

from importlib import import_module

import numpy as np
import pytest

from hpo.adapters.curve_files import read_runs
from hpo.adapters.readers.event_frames import frames, plain_scalars
from hpo.adapters.readers.tensorboard import _scalars_of

pytest.importorskip("tensorboard")


def _event(step, tag="train_loss", value=1.0, **kinds):
    event = import_module("tensorboard.compat.proto.event_pb2").Event(step=step, wall_time=1.7e9)
    event.summary.value.add(tag=tag, simple_value=value, **kinds)
    return event


def _odd_events():
    two = _event(3)
    two.summary.value.add(tag="lr", simple_value=0.1)
    tensor = import_module("tensorboard.compat.proto.event_pb2").Event(step=5)
    tensor.summary.value.add(tag="train_loss").tensor.CopyFrom(
        import_module("tensorboard.util.tensor_util").make_tensor_proto(np.float32(2.5))
    )
    tensor.summary.value[0].metadata.plugin_data.plugin_name = "scalars"
    named = _event(6)
    named.summary.value[0].node_name = "node"
    image = import_module("tensorboard.compat.proto.event_pb2").Event(step=7)
    image.summary.value.add(tag="image").image.encoded_image_string = bytes(range(256)) * 40
    version = import_module("tensorboard.compat.proto.event_pb2").Event(file_version="brain.Event:2")
    return [version, two, tensor, named, image, _event(0), _event(-4), _event(2**40, "é" * 9), _event(9, "x" * 300)]


def _written(path, events):
    writer_of = import_module("tensorboard.summary.writer.record_writer").RecordWriter
    with path.open("wb") as file:
        for event in events:
            writer_of(file).write(event.SerializeToString())
    return path


def _as_the_package_reads(path):
    loader = import_module("tensorboard.backend.event_processing.event_file_loader").EventFileLoader(str(path))
    make = import_module("tensorboard.util.tensor_util").make_ndarray
    found = {}
    for event in loader.Load():  # which turns plain values into tensors
        for value in event.summary.value:
            if value.HasField("tensor") and value.tensor.dtype == 1 and value.metadata.plugin_data.plugin_name == "scalars":
                found.setdefault(value.tag, []).append((event.step, float(make(value.tensor).ravel()[0])))
    return found


def test_mixed_events_are_what_the_package_reads(tmp_path):
    rng = np.random.default_rng(0)
    plain = [_event(int(k), f"tag{k % 5}", float(rng.normal())) for k in range(300)]
    path = _written(tmp_path / "events.out.tfevents.1", [*_odd_events(), *plain, *_odd_events()])
    found, series = _scalars_of(path.read_bytes())
    assert found.consumed == path.stat().st_size
    ours = {tag: list(zip(steps.tolist(), values.tolist(), strict=True)) for tag, (steps, values) in series.items()}
    assert ours == _as_the_package_reads(path)


def test_most_events_are_read_together(tmp_path):
    path = _written(tmp_path / "events.out.tfevents.1", [_event(k) for k in range(50)])
    checksum = import_module("tensorboard.compat.tensorflow_stub.pywrap_tensorflow").masked_crc32c
    found = frames(path.read_bytes(), checksum)
    assert plain_scalars(path.read_bytes(), found).records.size == 50


@pytest.mark.parametrize("at", [3, 9, 20, 40])
def test_a_flipped_bit_ends_the_file_there(tmp_path, at):
    path = _written(tmp_path / "events.out.tfevents.1", [_event(k) for k in range(1, 31)])
    data = bytearray(path.read_bytes())
    size = len(data) // 30
    data[20 * size + at] ^= 1
    path.write_bytes(bytes(data))
    (run,) = read_runs(path)
    assert run.steps.size == 20
    assert any("damaged" in note for note in run.notes)
