import time

from tests.training.small_run import SILENT, options, write_data

from permalign.training.launch import train


def test_a_run_stops_at_the_first_evaluation_after_its_processor_time(tmp_path):
    data, started = write_data(tmp_path), time.process_time()
    progress = train(options(data, max_cpu_minutes=1e-6, stages=[]), tmp_path / "run", display=SILENT)
    assert progress.step == 4
    assert progress.finished == "1e-06 minutes of CPU time are used up"
    assert 0 < progress.processor_seconds <= time.process_time() - started


def test_a_run_with_enough_time_makes_all_its_steps(tmp_path):
    progress = train(options(write_data(tmp_path), max_cpu_minutes=60), tmp_path / "run", display=SILENT)
    assert progress.finished == "all 12 steps are done"
