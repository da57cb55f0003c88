"""The build of the C sources as plain shared libraries without Python's headers, so that one wheel serves every Python 3."""

import os
import sys

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext


class PlainLibraries(build_ext):
    """A build of libraries without a Python version in the file name."""

    def get_ext_filename(self, ext_name: str) -> str:
        """Return the path of a library: the module's path with ``.so``."""
        return f"{ext_name.replace('.', '/')}.so"

    def get_export_symbols(self, ext: object) -> list[str]:  # noqa: ARG002 - as setuptools calls it
        """Return no symbols, because the libraries have no module initialisation to export."""
        return []


class AnyPython(bdist_wheel):
    """A wheel for this platform and every Python 3."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tags of the wheel's name; the wheel needs the C library of this machine or a newer one."""
        name, _, version = os.confstr("CS_GNU_LIBC_VERSION").partition(" ") if sys.platform == "linux" else ("", "", "")
        platform = super().get_tag()[2]
        return (
            "py3",
            "none",
            platform.replace("linux_", f"manylinux_{version.replace('.', '_')}_", 1) if name == "glibc" else platform,
        )


setup(cmdclass={"build_ext": PlainLibraries, "bdist_wheel": AnyPython})
