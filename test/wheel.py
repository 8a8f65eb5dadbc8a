"""Makes a wheel in the form of aider-chat's: wheel.py DIRECTORY VERSION."""

import sys
import zipfile

directory, version = sys.argv[1:]
info = f"aider_chat-{version}.dist-info"
files = {
    "aider_stand_in.py": f'def main():\n    print("aider {version}, a stand-in")\n',
    f"{info}/METADATA": f"Metadata-Version: 2.1\nName: aider-chat\nVersion: {version}\n",
    f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    f"{info}/entry_points.txt": "[console_scripts]\naider = aider_stand_in:main\n",
}
files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
with zipfile.ZipFile(f"{directory}/aider_chat-{version}-py3-none-any.whl", "w") as wheel:
    for name, text in files.items():
        wheel.writestr(name, text)
