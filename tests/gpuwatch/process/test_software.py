"""Tests of the recorded environment: variables that change speed, and no possible secret."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.process.software import environment


def test_what_changes_speed_is_told_sorted() -> None:
    found = environment(
        {"TORCHINDUCTOR_MAX_AUTOTUNE": "1", "CUDA_MODULE_LOADING": "LAZY", "HOME": "/root", "NVIDIA_TF32_OVERRIDE": "0"}
    )
    assert found == "CUDA_MODULE_LOADING=LAZY;NVIDIA_TF32_OVERRIDE=0;TORCHINDUCTOR_MAX_AUTOTUNE=1"


def test_places_secrets_and_the_choice_of_a_gpu_are_left_out() -> None:
    hidden = (
        "CUDA_HOME",
        "TORCH_HOME",
        "TRITON_CACHE_DIR",
        "CUDA_MPS_PIPE_DIRECTORY",
        "VLLM_API_KEY",
        "JAX_AUTH_TOKEN",
        "CUDA_VISIBLE_DEVICES",
        "WANDB_API_KEY",
    )
    assert environment(dict.fromkeys(hidden, "x")) == ""


def test_secrets_are_left_out_however_they_are_named() -> None:
    hidden = (
        "TF_VAR_db_master",
        "TF_CLI_ARGS",
        "TF_CONFIG",
        "torch_password",
        "JAX_COORDINATOR_ADDRESS",
        "VLLM_HOST_IP",
        "NCCL_PASSPHRASE",
    )
    assert environment(dict.fromkeys(hidden, "x")) == ""
    assert environment({"TORCHINDUCTOR_REMOTE": "redis://me:word@there:6379", "OMP_PLACES": "cores"}) == "OMP_PLACES=cores"


def test_a_value_that_is_no_text_can_be_told() -> None:
    found = environment({"LD_PRELOAD": b"/tmp/\xff.so".decode("utf-8", "surrogateescape")})
    assert found == "LD_PRELOAD=/tmp/�.so"
    assert found.encode("utf-8"), "it can be sent and stored"


def test_a_value_cannot_pass_for_another_variable() -> None:
    assert environment({"OMP_PLACES": "a;OMP_X=1"}) == "OMP_PLACES=a,OMP_X=1"


@given(st.dictionaries(st.sampled_from(["CUDA_A", "OMP_B", "NCCL_C"]), st.text()))
def test_every_environment_is_short_enough_to_tell(environ: dict[str, str]) -> None:
    assert len(environment(environ)) <= 4000
