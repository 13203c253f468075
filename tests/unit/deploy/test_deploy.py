"""The files for running Runnel as a service: each read by a real parser or linter, and held to what it promises."""

from __future__ import annotations

import configparser
import ipaddress
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from runnel.settings import Settings

DEPLOY = Path(__file__).parents[3] / "deploy"


def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    return loaded


def settings_named(text: str) -> set[str]:
    return {name.lower() for name in re.findall(r"\bRUNNEL_([A-Z_]+)\b", text)} - {"workspace"}


def test_the_container_file_passes_its_linter() -> None:
    hadolint = Path(sys.executable).parent / "hadolint"
    process = subprocess.run([hadolint, DEPLOY / "Containerfile"], capture_output=True, text=True, check=False)
    assert (process.returncode, process.stdout) == (0, "")


def test_the_container_runs_as_a_user_without_rights_and_drains() -> None:
    lines = (DEPLOY / "Containerfile").read_text("utf-8").splitlines()
    words = {line.split()[0]: line for line in lines if line and not line.startswith(("#", " "))}
    assert words["USER"] == "USER 10001"
    assert words["STOPSIGNAL"] == "STOPSIGNAL SIGTERM"
    assert "HEALTHCHECK" in words


def test_everything_the_container_copies_is_there() -> None:
    text = (DEPLOY / "Containerfile").read_text("utf-8")
    copied = [name for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE) for name in line.split()[:-1]]
    copied += re.findall(r"-r (\S+)", text)
    assert len(copied) >= 6
    assert [name for name in copied if not (DEPLOY.parent / name).exists()] == []


def test_compose_is_whole() -> None:
    messages = compose()
    assert set(messages["services"]) == {"catalog", "runnel"}
    for service in messages["services"].values():
        named = [volume.split(":")[0] for volume in service["volumes"]]
        assert set(named) <= set(messages["volumes"])
        assert set(service["secrets"]) <= set(messages["secrets"])
    runnel = messages["services"]["runnel"]
    assert (DEPLOY / runnel["build"]["context"] / runnel["build"]["dockerfile"]).exists()
    assert runnel["depends_on"]["catalog"]["condition"] == "service_healthy"
    assert messages["services"]["catalog"]["healthcheck"]["test"]


def test_no_secret_stands_in_any_of_the_files() -> None:
    for service in compose()["services"].values():
        for name, value in service["environment"].items():
            assert "PASSWORD" not in name or name.endswith("_FILE"), name
            assert not re.search(r"://[^/@]*:[^/@]+@", str(value)), name


@pytest.mark.parametrize("name", ["Containerfile", "compose.yaml", "runnel.service"])
def test_only_settings_that_exist_are_named(name: str) -> None:
    named = settings_named((DEPLOY / name).read_text("utf-8"))
    assert named
    assert named <= set(Settings.model_fields)


def test_the_unit_is_read_by_systemd_itself() -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:  # not everywhere; the next test reads the unit without it
        pytest.skip("systemd is not on this machine")
    process = subprocess.run(
        [analyze, "verify", str(DEPLOY / "runnel.service")], capture_output=True, text=True, check=False
    )
    problems = [line for line in process.stderr.splitlines() if "runnel.service" in line]
    # The command is installed later, by the user of the unit.
    assert [line for line in problems if "is not executable" not in line] == []


def test_base_images_are_given_by_digest() -> None:
    """Without the build argument, which has no default, the name of the image is not valid and the build fails."""
    text = (DEPLOY / "Containerfile").read_text("utf-8")
    images = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    assert len(images) == 2
    assert all(image.endswith("@${PYTHON_DIGEST}") for image in images)
    assert re.search(r"^ARG PYTHON_DIGEST$", text, re.MULTILINE)
    services = compose()["services"]
    assert re.fullmatch(r"postgres:\S+@\$\{POSTGRES_DIGEST:\?.+\}", services["catalog"]["image"])
    assert services["runnel"]["build"]["args"]["PYTHON_DIGEST"].startswith("${PYTHON_DIGEST:?")


def test_the_unit_exposes_little() -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:  # not everywhere; the next tests read the unit without it
        pytest.skip("systemd is not on this machine")
    command = [analyze, "security", "--offline=true", "--threshold=25", str(DEPLOY / "runnel.service")]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout[-200:]


def unit_values(name: str) -> list[str]:
    """All values of a directive that may be given several times, in order."""
    text = (DEPLOY / "runnel.service").read_text("utf-8")
    return [word for line in re.findall(rf"^{name}=(.*)$", text, re.MULTILINE) for word in line.split()]


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "fe80::1",
        "10.0.0.1",
        "172.31.255.255",
        "192.168.0.1",
        "100.64.0.1",
        "fd00:ec2::254",
        "168.63.129.16",
        "224.0.0.1",
        "ff02::1",
    ],
)
def test_the_unit_reaches_no_private_address(address: str) -> None:
    names = {"link-local": ["169.254.0.0/16", "fe80::/64"], "multicast": ["224.0.0.0/4", "ff00::/8"]}
    denied = [network for word in unit_values("IPAddressDeny") for network in names.get(word, [word])]
    assert any(ipaddress.ip_address(address) in ipaddress.ip_network(network) for network in denied)
    assert unit_values("IPAddressAllow") == ["localhost"], "Spark and PostgreSQL on this machine"


@pytest.mark.parametrize("address", ["93.184.215.14", "2606:2800:21f::1", "127.0.0.1", "::1", "172.32.0.1"])
def test_the_unit_reaches_the_internet_and_this_machine(address: str) -> None:
    denied = [word for word in unit_values("IPAddressDeny") if "/" in word or "." in word]
    assert not any(ipaddress.ip_address(address) in ipaddress.ip_network(network) for network in denied)


def test_the_unit_restarts_drains_and_is_hardened() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "runnel.service", encoding="utf-8")
    service = unit["Service"]
    assert unit_values("SystemCallFilter") == ["@system-service", "~@privileged"]
    assert service["ProtectProc"] == "invisible"
    assert "MemoryDenyWriteExecute" not in service, "Java compiles at run time"
    assert service["ExecStart"].endswith("runnel run")
    assert (service["Restart"], service["KillSignal"], service["NoNewPrivileges"]) == ("on-failure", "SIGTERM", "yes")
    assert service["ProtectSystem"] == "strict"
