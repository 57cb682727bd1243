"""The manifests: schemas of Kubernetes accept them, strictly, and what they set is what the program knows.

They are rendered by `kubectl kustomize`; without a kubectl the files of the base are read as they are. No cluster is
needed, and none is tried.
"""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from deploy.release.source import version
from eventd.cli.daemon.serving import GRACE_SECONDS
from eventd.settings.loading import load
from eventd.settings.model import Settings, variable_of
from tests.support.source import ROOT

FOLDER = ROOT / "deploy" / "kubernetes"
RELEASE = "1.37"
OPERATOR = "monitoring.coreos.com/v1"
"""Its kinds belong to no release of Kubernetes."""
RENDERED = ["base", *(f"overlays/{folder.name}" for folder in sorted((FOLDER / "overlays").iterdir()))]


@cache
def manifests(name: str) -> list[dict[str, Any]]:
    if shutil.which("kubectl") is None:
        if name != "base":
            pytest.skip("kubectl is not installed, so overlays cannot be rendered")
        files = [file for file in sorted((FOLDER / "base").glob("*.yaml")) if file.name != "kustomization.yaml"]
        return [each for file in files for each in yaml.safe_load_all(file.read_text())]
    done = subprocess.run(["kubectl", "kustomize", FOLDER / name], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def one(name: str, kind: str, called: str = "routerd-eventd") -> dict[str, Any]:
    (found,) = (each for each in manifests(name) if (each["kind"], each["metadata"]["name"]) == (kind, called))
    return found


def container(name: str) -> dict[str, Any]:
    (found,) = one(name, "StatefulSet")["spec"]["template"]["spec"]["containers"]
    return dict(found)


def environment(name: str) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container(name)["env"]}


def settings_of(name: str, folder: Path) -> Settings:
    """Return the settings of the container, with its secrets in a folder of the test."""
    for secret, text in (("api-keys", "a-key-of-the-operator"), ("database-url", "postgresql+psycopg://e@db/e")):
        (folder / secret).write_text(text)
        (folder / secret).chmod(0o640)
    values = {
        key: value.replace("/run/secrets/routerd-eventd/", f"{folder}/") for key, value in environment(name).items()
    }
    return load({}, values | {"CREDENTIALS_DIRECTORY": str(folder)})


def check(manifest: dict[str, Any]) -> None:
    kubernetes_validate.validate(manifest, RELEASE, strict=True)


@pytest.mark.parametrize("name", RENDERED)
def test_the_schemas_of_kubernetes_accept_every_manifest(name: str) -> None:
    for manifest in manifests(name):
        if manifest["apiVersion"] != OPERATOR:
            check(manifest)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "template", "spec", "containers", 0, "readinesProbe"), {}),
        (("spec", "replicas"), "one"),
    ],
)
def test_a_misspelt_field_and_a_wrong_type_are_refused(path: tuple[str | int, ...], value: Any) -> None:
    manifest: Any = yaml.safe_load((FOLDER / "base" / "stateful-set.yaml").read_text())
    manifest["spec"]["selector"] = {"matchLabels": {"a": "b"}}
    check(manifest)
    inner = manifest
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with pytest.raises(kubernetes_validate.ValidationError):
        check(manifest)


@pytest.mark.parametrize("name", RENDERED)
def test_every_variable_is_a_setting_and_the_settings_are_accepted(name: str, tmp_path: Path) -> None:
    known = {variable_of(setting) for setting in Settings.model_fields} | {"TMPDIR", "SQLITE_TMPDIR"}
    assert environment(name).keys() <= known
    settings = settings_of(name, tmp_path)
    assert (list(settings.warnings), settings.api_listen.port) == ([], 8780)
    if name == "base" or shutil.which("kubectl"):
        mounts = [mount["mountPath"] for mount in container(name)["volumeMounts"]]
        for variable in ("EVENTD_DATA_DIR", "TMPDIR", "SQLITE_TMPDIR", "CREDENTIALS_DIRECTORY"):
            assert environment(name)[variable].startswith(tuple(mounts)), "the root is read-only"


@pytest.mark.parametrize("name", RENDERED)
def test_a_pod_has_no_right_that_it_does_not_need(name: str) -> None:
    pod = one(name, "StatefulSet")["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert one(name, "ServiceAccount")["automountServiceAccountToken"] is False
    assert (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["seccompProfile"]) == (
        True,
        {"type": "RuntimeDefault"},
    )
    assert container(name)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    policies = [each for each in manifests(name) if each["kind"] == "NetworkPolicy"]
    assert all(each["spec"]["podSelector"].get("matchLabels") for each in policies), "it concerns only these pods"
    assert not [each for each in manifests(name) if each["kind"] == "Secret"]


@pytest.mark.parametrize("name", RENDERED)
def test_a_long_migration_survives_the_probes_and_a_stop_its_drain(name: str, tmp_path: Path) -> None:
    probe = container(name)["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 600
    paths = {kind: container(name)[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")}
    assert paths == {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}
    grace = one(name, "StatefulSet")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace > settings_of(name, tmp_path).drain_timeout + GRACE_SECONDS


def test_a_file_of_sqlite_has_one_pod_and_a_disk_of_its_own() -> None:
    for name in [name for name in RENDERED if name != "overlays/postgres-standby"]:
        spec = one(name, "StatefulSet")["spec"]
        assert spec["replicas"] == 1
        assert spec["volumeClaimTemplates"][0]["spec"]["accessModes"] == ["ReadWriteOnce"]


def test_the_standby_is_one_of_two_pods_that_no_rollout_waits_for() -> None:
    spec = one("overlays/postgres-standby", "StatefulSet")["spec"]
    assert (spec["replicas"], spec["podManagementPolicy"], spec["updateStrategy"]) == (
        2,
        "Parallel",
        {"type": "OnDelete"},
    )
    assert container("overlays/postgres-standby")["args"] == ["serve", "--standby", "--migrate"]
    assert not spec.get("volumeClaimTemplates")


def test_with_tls_probes_scrapes_and_the_ingress_speak_it() -> None:
    probes = [
        container("overlays/complete")[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")
    ]
    assert {probe["scheme"] for probe in probes} == {"HTTPS"}
    endpoints = one("overlays/complete", "ServiceMonitor")["spec"]["endpoints"]
    assert [(each["scheme"], each["path"]) for each in endpoints] == [("https", "/metrics"), ("https", "/v0/metrics")]
    annotations = one("overlays/complete", "Ingress")["metadata"]["annotations"]
    assert annotations == {"nginx.ingress.kubernetes.io/backend-protocol": "HTTPS"}


def test_names_that_manifests_use_exist() -> None:
    """Ports by name, Services, and the labels by which a scrape finds one of them."""
    for name in RENDERED:
        ports = {port["name"] for port in container(name)["ports"]}
        for service in (each for each in manifests(name) if each["kind"] == "Service"):
            assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
        headless = one(name, "Service", one(name, "StatefulSet")["spec"]["serviceName"])
        assert headless["spec"]["clusterIP"] == "None"
    if shutil.which("kubectl"):
        wanted = one("overlays/complete", "ServiceMonitor")["spec"]["selector"]["matchLabels"].items()
        services = [each for each in manifests("overlays/complete") if each["kind"] == "Service"]
        scraped = [
            each["metadata"]["name"] for each in services if wanted <= each["metadata"].get("labels", {}).items()
        ]
        assert scraped == ["routerd-eventd"]


def test_every_component_is_in_an_overlay() -> None:
    text = (FOLDER / "overlays" / "complete" / "kustomization.yaml").read_text()
    assert [folder.name for folder in sorted((FOLDER / "components").iterdir()) if folder.name not in text] == []


def test_every_file_is_named_by_the_kustomization_of_its_folder() -> None:
    for file in sorted(FOLDER.rglob("kustomization.yaml")):
        others = {each.name for each in file.parent.glob("*.yaml")} - {file.name}
        assert {name for name in others if name not in file.read_text()} == set(), file


def test_the_version_of_the_image_is_that_of_the_project() -> None:
    kustomization = yaml.safe_load(Path(FOLDER / "base" / "kustomization.yaml").read_text())
    assert kustomization["images"] == [{"name": "routerd-eventd", "newTag": version()}]
