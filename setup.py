"""Maps the top-level folders to `papergym.*`: folder X is imported as `papergym.X`, `papergym/` is the package root."""

from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
FOLDERS = ("kernels", "model", "data_pipeline", "judge", "distill", "rl", "bench")


def subpackages(folder: str, name: str) -> list[str]:
    """Dotted names of every package below a folder, e.g. `papergym.model.generation`."""
    inits = sorted((ROOT / folder).rglob("*/__init__.py"))
    return [".".join((name, *init.parent.relative_to(ROOT / folder).parts)) for init in inits]


setup(
    package_dir={"papergym": "papergym"} | {f"papergym.{folder}": folder for folder in FOLDERS},
    packages=["papergym", *subpackages("papergym", "papergym")]
    + [name for folder in FOLDERS for name in (f"papergym.{folder}", *subpackages(folder, f"papergym.{folder}"))],
    package_data={"": ["*.toml", "*.html", "*.css", "*.js", "*.txt", "*.json", "*.cpp", "*.h"]},
)
