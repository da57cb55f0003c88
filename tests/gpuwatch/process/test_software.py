"""Tests of the recorded environment: variables that change speed, without possible secrets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.process.software import environment


def test_environment_lists_speed_variables_sorted() -> None:
    found = environment(
        {"TORCHINDUCTOR_MAX_AUTOTUNE": "1", "CUDA_MODULE_LOADING": "LAZY", "HOME": "/root", "NVIDIA_TF32_OVERRIDE": "0"}
    )
    assert found == "CUDA_MODULE_LOADING=LAZY;NVIDIA_TF32_OVERRIDE=0;TORCHINDUCTOR_MAX_AUTOTUNE=1"


def test_environment_omits_paths_secrets_and_gpu_choice() -> None:
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


def test_environment_omits_addresses_and_logins() -> None:
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


def test_environment_replaces_bytes_that_are_not_utf8() -> None:
    found = environment({"LD_PRELOAD": b"/tmp/\xff.so".decode("utf-8", "surrogateescape")})
    assert found == "LD_PRELOAD=/tmp/�.so"
    assert found.encode("utf-8"), "the text can be sent and stored"


def test_environment_value_cannot_add_a_variable() -> None:
    assert environment({"OMP_PLACES": "a;OMP_X=1"}) == "OMP_PLACES=a,OMP_X=1"


@given(st.dictionaries(st.sampled_from(["CUDA_A", "OMP_B", "NCCL_C"]), st.text()))
def test_environment_text_is_bounded(environ: dict[str, str]) -> None:
    assert len(environment(environ)) <= 4000
