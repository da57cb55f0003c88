"""The judge without gpuwatch: as a program, and in the Python example of docs/JUDGE.md."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from annotate.__main__ import main
from annotate.capsule.pack import pack
from annotate.evidence import Ownership
from tests.annotate.builders import OWN, evidence

PAGE = Path(__file__).parents[2] / "docs" / "JUDGE.md"
WITHOUT_GPUWATCH = "import sys; assert not [name for name in sys.modules if name.partition('.')[0] == 'gpuwatch']"


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "window.capsule"
    path.write_bytes(
        pack([evidence(length_s=6.0, label="first"), evidence(length_s=0.1, signals={"power_limit_w": 500.0}, label="second")])
    )
    return path


def run(code: str, *arguments: str, cwd: Path) -> str:
    """Run code in another process that must not import gpuwatch; return the printed text."""
    command = [sys.executable, "-c", f"{code}\n{WITHOUT_GPUWATCH}", *arguments]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_main_judges_without_gpuwatch(recording: Path, tmp_path: Path) -> None:
    code = "import sys\nfrom annotate.__main__ import main\nassert main(sys.argv[1:]) == 0"
    printed = run(code, str(recording), cwd=tmp_path)
    assert re.findall("^(?:VALID|UNPROVEN) .*(first|second)", printed, re.MULTILINE) == ["first", "second"]
    assert "books: a window of a second or more" in printed


def test_python_dash_m_runs_main(recording: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "annotate", str(recording)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "first" in done.stdout


def test_main_judges_gpus_of_one_window_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """UUIDs distinguish GPUs of one name, and the worst comes first."""
    about = evidence()
    assert about.device is not None
    other = evidence(
        device=replace(about.device, uuid="GPU-2"), processes=[OWN, replace(OWN, pid=7, ownership=Ownership.FOREIGN)]
    )
    path = tmp_path / "two.capsule"
    path.write_bytes(pack([about, other]))
    assert main([str(path)]) == 0
    heads = [line for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")]
    assert [("GPU-2" in head, head.split()[0]) for head in heads] == [(True, "REJECTED"), (False, "VALID")]


def test_main_judges_under_the_claim(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(recording), "--claim", "fixed-clock", "--verbose"]) == 0
    assert "claim: fixed-clock" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "File is not a zip file); copy or export it again"),
        (b"not a recording", "damaged data"),
        (pack([]), "an empty one"),
        (None, "found nothing to read: No such file or directory; check path and permissions"),
    ],
)
def test_main_refuses_bad_input_in_one_line(
    content: bytes | None, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad\nname"
    if content is not None:
        path.write_bytes(content)
    assert main([str(path)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert expected in printed.err


def test_main_refuses_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    assert "found a folder or a pipe" in capsys.readouterr().err


def test_main_refuses_an_impossible_name_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["a" * 300]) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert "File name too long" in printed.err


def test_main_refuses_unknown_claims(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([str(recording), "--claim", "fast"])
    assert stopped.value.code == 2
    assert "fixed-clock" in capsys.readouterr().err


def test_docs_judge_a_recording_in_python(recording: Path) -> None:
    """The example of docs/JUDGE.md runs unchanged in a folder with a recording of that name."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    printed = run(code, cwd=recording.parent)
    assert printed.splitlines()[1] == "unproven ['clock-controller-present']"
