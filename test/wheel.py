"""Makes a wheel in the form of aider-chat's: wheel.py DIRECTORY VERSION."""

import pathlib
import sys
import zipfile

directory, version = sys.argv[1:]
program = pathlib.Path(__file__).with_name("container").joinpath("testdata/stand-in.sh").read_text().replace("NAME VERSION", f"aider {version}")
info = f"aider_chat-{version}.dist-info"
files = {
    "aider_stand_in.py": f"""import subprocess, sys
def main():
    sys.exit(subprocess.call(["sh", "-c", {program!r}, "aider", *sys.argv[1:]]))
""",
    f"{info}/METADATA": f"Metadata-Version: 2.1\nName: aider-chat\nVersion: {version}\n",
    f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    f"{info}/entry_points.txt": "[console_scripts]\naider = aider_stand_in:main\n",
}
files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
with zipfile.ZipFile(f"{directory}/aider_chat-{version}-py3-none-any.whl", "w") as wheel:
    for name, text in files.items():
        wheel.writestr(name, text)
