import pytest

from txcourse.errors import UserError
from txcourse.training import Config, load_config, presets


def test_the_preset_is_the_stated_budget():
    config = load_config("pronunciation")
    assert presets() == [
        "pronunciation",
        "pronunciation-2007",
        "pronunciation-large",
        "pronunciation-long",
        "translation",
    ]
    assert (config.task, config.steps, config.batch_size) == ("pronunciation", 6200, 96)
    assert config == Config()  # what the notebook starts from is what the command runs


def test_the_preset_of_the_translation_shares_one_matrix():
    cpu, cuda = load_config("translation", "cpu"), load_config("translation", "cuda")
    assert (cpu.task, cpu.tie_embeddings, cpu.steps) == ("translation", "all", 16000)
    assert (cuda.d_model, cuda.n_layers, cuda.dropout, cuda.peak_lr) == (128, 4, 0.3, 5e-3)


def test_the_task_of_2007_has_the_same_settings_as_todays():
    for device, today in (("cpu", "pronunciation-long"), ("cuda", "pronunciation")):
        same = load_config(today, device).replace(task="pronunciation-2007")
        assert load_config("pronunciation-2007", device) == same


def test_a_gpu_gets_a_larger_model():
    cpu, cuda = load_config("pronunciation", "cpu"), load_config("pronunciation", "cuda")
    assert cuda.d_model > cpu.d_model
    assert cuda.batch_size > cpu.batch_size
    assert load_config("pronunciation", "mps") == cpu


def test_a_file_of_ones_own(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('task = "copy"\nsteps = 10\npeak_lr = 1\n[cpu]\nsteps = 20\n')
    assert load_config(str(file), "cpu").steps == 20
    assert load_config(str(file), "cuda").steps == 10
    assert load_config(str(file)).peak_lr == 1.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("steps = ", "not a TOML file"),
        ("layers = 3", "unknown setting 'layers'"),
        ("[tpu]\nsteps = 3", r"unknown section \[tpu\]"),
        ('steps = "many"', "steps must be int, not 'many'"),
        ("steps = true", "steps must be int"),
        ("steps = 0", "steps must be at least 1"),
        ("dropout = 1.0", "dropout must be at least 0 and below 1"),
        ("d_model = 10", r"d_model must be divisible by n_heads \(4\)"),
        ('task = "translate"', "task must be one of pronunciation, "),
    ],
)
def test_mistakes_are_one_line(tmp_path, text, message):
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(UserError, match=message) as error:
        load_config(str(file))
    assert "\n" not in str(error.value)


def test_a_missing_file_names_the_presets(tmp_path):
    with pytest.raises(UserError, match="one of pronunciation"):
        load_config(str(tmp_path / "none.toml"))
    with pytest.raises(UserError, match="Cannot read"):
        load_config(str(tmp_path))
