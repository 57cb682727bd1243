"""`make deb`: the Debian package, with the program and its libraries in /opt/routerd-eventd.

A virtual environment does not survive being moved, so it is made at its final path, in a tree of the suite that it is
for: the one that the image is built on.
"""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from deploy.release import image
from deploy.release.source import DIST, ROOT, BuildFailed, commit_time, run, run_program, version
from deploy.release.wheel import build

HOME = "opt/routerd-eventd"
SOURCES = ROOT / "deploy" / "debian"
UNITS = ROOT / "deploy" / "systemd"
NEEDED = ("mmdebstrap", "dpkg-deb", "chroot")
LOCK = "requirements-runtime.lock"


def missing() -> list[str]:
    """Return the programs that are needed and not installed."""
    return [name for name in NEEDED if shutil.which(name) is None]


def unpack_tree(target: Path) -> Path:
    """Unpack a tree of the suite, with Python and CA certificates; return it."""
    target.mkdir(parents=True)
    run(["tar", "--extract", "--file", image.make_tree(), "--directory", target])
    return target


def in_tree(tree: Path, *words: str) -> str:
    """Return the output of a command whose root is the tree. Its files are all that it can reach."""
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/nowhere", "LANG": "C.UTF-8"}
    return run(["chroot", tree, *words], env=environment | {"SOURCE_DATE_EPOCH": str(commit_time())})


def install_program(tree: Path, wheel: Path) -> None:
    """Make the environment at its final path, by the hashes of the lock and without an index."""
    shutil.copytree(image.fetch_wheels(), tree / "wheels")
    shutil.copy(wheel, tree / "wheels")
    for lock in image.LOCKS:
        shutil.copy(ROOT / lock, tree)
    in_tree(tree, "python3", "-m", "venv", "/build")
    in_tree(tree, "python3", "-m", "venv", "--without-pip", f"/{HOME}")
    pip = ["/build/bin/python", "-m", "pip", "--quiet", "--disable-pip-version-check", f"--python=/{HOME}/bin/python"]
    offline = ["install", "--no-index", "--find-links=/wheels", "--no-compile", "--no-cache-dir"]
    in_tree(tree, *pip, *offline, "--require-hashes", "-r", f"/{LOCK}")
    in_tree(tree, *pip, *offline, "--no-deps", f"/wheels/{wheel.name}")
    # What is compiled stays valid whatever the times of files are.
    compiled = ["-m", "compileall", "-q", "--invalidation-mode=unchecked-hash", f"/{HOME}/lib"]
    in_tree(tree, f"/{HOME}/bin/python", *compiled)
    for file in (tree / HOME / "bin").iterdir():
        if not file.name.startswith(("python", "router")):
            file.unlink()
    for file in (tree / HOME / "lib").rglob("*.so*"):
        file.chmod(0o644)


def assemble(tree: Path, package: Path, number: str) -> None:
    """Lay out the files of the package: the program, and what other packages look for below /usr and /lib."""
    package.mkdir()
    run(["cp", "--archive", "--parents", HOME, package], cwd=tree)
    for name in ("routerd-eventd", "routerctl"):
        _link(package / "usr" / "bin" / name, f"/{HOME}/bin/{name}")
    for unit in [*UNITS.glob("*.service"), *UNITS.glob("*.target")]:
        _copy(unit, package / "lib" / "systemd" / "system")
    _copy(UNITS / "tmpfiles.d" / "routerd-eventd.conf", package / "usr" / "lib" / "tmpfiles.d")
    documents = package / "usr" / "share" / "doc" / "routerd-eventd"
    for file in [*UNITS.glob("drop-ins/*"), *UNITS.glob("sysctl.d/*")]:
        _copy(file, documents / "examples" / file.parent.name)
    _copy(SOURCES / "copyright", documents)
    _compress(
        f"routerd-eventd ({number}) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n{_signature()}", documents
    )
    for file in sorted((ROOT / "deploy" / "man").rglob("*.[158]")):
        _compress(file.read_text(), package / "usr" / "share" / "man" / file.parent.name, file.name)
    for source, target in (
        ("bash/routerctl", "bash-completion/completions"),
        ("zsh/_routerctl", "zsh/vendor-completions"),
        ("fish/routerctl.fish", "fish/vendor_completions.d"),
    ):
        _copy(ROOT / "deploy" / "completions" / source, package / "usr" / "share" / target)
    overrides = package / "usr" / "share" / "lintian" / "overrides"
    _copy(SOURCES / "lintian-overrides", overrides)
    (overrides / "lintian-overrides").rename(overrides / "routerd-eventd")


def write_package(tree: Path, package: Path, number: str, target: Path) -> Path:
    """Write the package of these files, with this version; return it."""
    control = package / "DEBIAN"
    shutil.rmtree(control, ignore_errors=True)
    control.mkdir()
    minor = int(image.PYTHON.split(".")[1])
    values = {
        "VERSION": number,
        "ARCHITECTURE": in_tree(tree, "dpkg", "--print-architecture").strip(),
        "SIZE": str(sum(file.lstat().st_size for file in package.rglob("*")) >> 10),
        "PYTHON": f"3.{minor}",
        "NEXT": f"3.{minor + 1}",
    }
    text = (SOURCES / "control.in").read_text()
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    (control / "control").write_text(text)
    for script in ("postinst", "prerm", "postrm"):
        _copy(SOURCES / script, control)
        (control / script).chmod(0o755)
    made = target / f"routerd-eventd_{number}_{values['ARCHITECTURE']}.deb"
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(commit_time())}
    run(["dpkg-deb", "--root-owner-group", "-Zxz", "--build", package, made], env=environment)
    return made


def _signature() -> str:
    date = subprocess.run(
        ["date", "--utc", "--rfc-email", f"--date=@{commit_time()}"], capture_output=True, text=True, check=True
    ).stdout
    return f" -- routerd-eventd maintainers <maintainers@example.invalid>  {date}"


def _link(link: Path, target: str) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(target)


def _copy(file: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, folder / file.name)
    (folder / file.name).chmod(0o644)


def _compress(text: str, folder: Path, name: str = "changelog.Debian") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    (folder / f"{name}.gz").chmod(0o644)


def build_deb(target: Path, scratch: Path, number: str = "") -> Path:
    """Build the package into a folder. `scratch` gets the tree, in which the package can be tried."""
    if absent := missing():
        raise BuildFailed(f"{', '.join(absent)} is not installed (Debian: apt-get install mmdebstrap dpkg-dev)")
    if os.geteuid() != 0:
        raise BuildFailed("a tree of Debian can be made by root alone")
    tree = unpack_tree(scratch / "tree")
    install_program(tree, build(scratch).wheel)
    before = os.umask(0o022)
    try:
        assemble(tree, scratch / "package", number or f"{version()}-1")
        target.mkdir(exist_ok=True)
        return write_package(tree, scratch / "package", number or f"{version()}-1", target)
    finally:
        os.umask(before)


def lint(package: Path) -> str:
    """Return what lintian says of a package. Raises `BuildFailed` for an error, or without lintian."""
    if shutil.which("lintian") is None:
        raise BuildFailed("lintian is not installed (Debian: apt-get install lintian)")
    return run(["lintian", "--allow-root", "--fail-on", "error", "--tag-display-limit=0", package])


def main() -> None:
    """Build into `dist/`, and have lintian look at it."""
    with tempfile.TemporaryDirectory() as scratch:
        made = build_deb(DIST, Path(scratch))
    print(lint(made), end="")
    print(f"{made}  {made.stat().st_size:,} bytes")


if __name__ == "__main__":
    run_program(main)
