"""A realistic run directory, made up: two stages, their rollouts, three evaluated rows; and headless Chromium over a pipe."""

import json
import math
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

GENERAL = [
    "Handles all criteria",
    "Detailed, specific solution",
    "No overlooked flaws",
    "Well-justified rationale",
    "Cost and effort efficient",
    "No ethical issues",
    "Consistent with the overall plan",
]
TOPICS = [
    ("queue-ballast", "cs", "tail latency in replicated key-value stores under skewed load"),
    ("sparse-replay", "cs", "forgetting in continually trained speech recognisers"),
    ("lint-drift", "cs", "how static analysis warnings age in long-lived repositories"),
    ("cache-courtesy", "cs", "fair sharing of processor caches between virtual machines"),
    ("film-breakup", "physics", "the break-up of thin liquid films on patterned surfaces"),
    ("trap-heating", "physics", "heating of ions near segmented trap electrodes"),
    ("bus-fares", "econ", "how free local buses change where low-income households work"),
    ("price-memory", "econ", "whether shoppers remember prices from before a promotion"),
]
WORDS = [
    *("we", "measure", "the", "effect", "of", "each", "factor", "on", "held", "out", "data", "with", "a", "control", "group", "and"),
    *("report", "the", "spread", "over", "repeated", "runs", "so", "that", "the", "comparison", "to", "a", "simpler", "baseline"),
    *("remains", "fair", "while", "the", "cost", "stays", "within", "a", "fixed", "budget", "and", "every", "step", "is", "logged"),
]


def prose(rng: random.Random, words: int) -> str:
    """Sentences of ordinary length, in paragraphs."""
    sentences, left = [], words
    while left > 0:
        length = rng.randint(8, 22)
        sentences.append(" ".join(rng.choices(WORDS, k=length)).capitalize() + ".")
        left -= length
    return "\n\n".join(" ".join(sentences[start : start + 4]) for start in range(0, len(sentences), 4))


def make_environment(index: int, rng: random.Random) -> dict[str, Any]:
    name, domain, topic = TOPICS[index % len(TOPICS)]
    name = name if index < len(TOPICS) else f"{name}-{index}"
    return {
        "id": f"{domain}/{name}",
        "domain": domain,
        "question": f"Little is known about {topic}. {prose(rng, 60)} How would you find out?",
        "reference": f"Method. {prose(rng, 90)}\n\nExperiment. {prose(rng, 90)}",
        "rubric": [
            {
                "text": f"The plan {rng.choice(['measures', 'controls', 'compares', 'reports'])} {' '.join(rng.choices(WORDS, k=11))}.",
                "dimension": "method" if place < 6 else "experiment",
                "source": ("question", "answer", "both")[place % 3],
                "weight": 1.0,
            }
            for place in range(10)
        ],
        "stages": {
            "goal": f"Understand {topic}.",
            "background": prose(rng, 50),
            "method": prose(rng, 80),
            "experiment": prose(rng, 70),
        },
        "provenance": {
            "paper": f"examples/papers/{name}",
            "sha256": f"{rng.getrandbits(256):064x}",
            "date": None,
            "model": "rules",
            "prompts": "",
            "created": "2026-11-30T12:00:00Z",
        },
    }


def name_sections(environment: dict[str, Any]) -> dict[str, Any]:
    """The same with the sections of its method: the first thirty characters from one, the rest from another."""
    method = environment["stages"]["method"]
    environment["provenance"]["sections"] = {"method": [["Design <i>", 30], ["", len(method) - 31]]}
    return environment


def make_answer(
    rng: random.Random, environment: dict[str, Any], sample: int, level: float, words: int, scored: bool = True
) -> dict[str, Any]:
    """level: chance that a criterion is met. Rubric 0.7, general 0.3; the ethics criterion is never scored."""
    plan = f"Plan. {prose(rng, words)}"
    thinking = f"<think>\n{prose(rng, words // 3)}\n</think>\n\n"
    cut = rng.random() < 0.1
    specialised = [rng.random() < level * (0.6 + 0.08 * place) for place in range(len(environment["rubric"]))]
    general: list[bool | None] = [None if place == 5 else rng.random() < 0.3 + level / 2 for place in range(7)]
    if not scored:
        specialised, general = [None] * len(specialised), [None] * 7  # type: ignore[list-item]
    known = [verdict for verdict in general if verdict is not None]
    return {
        "environment": environment["id"],
        "sample": sample,
        "response": thinking + plan + ("" if cut else "<|im_end|>"),
        "plan": plan,
        "tokens": int(1.4 * len((thinking + plan).split())),
        "finish_reason": "length" if cut else "stop",
        "specialised": specialised,
        "general": general,
        "reward": 0.7 * sum(specialised) / len(specialised) + 0.3 * sum(known) / len(known) if scored else None,
    }


def make_metrics(stage: str, step: int, steps: int, start: float, rng: random.Random) -> dict[str, Any]:
    done = step / steps
    noise = lambda scale: rng.gauss(0, scale)  # noqa: E731
    seconds = {"time/sample": 6 + noise(0.4), "time/train": 4 + noise(0.3), "time/score": 0.05 + abs(noise(0.01))}
    seconds["time/step"] = sum(seconds.values())
    record = {
        "step": step,
        "time": start + step * 10.2,
        "loss": 0.05 * math.exp(-2 * done) + abs(noise(0.004)),
        "grad_norm": 0.8 + abs(noise(0.3)),
        "lr": 2e-4 * min(1, step / 5) * (1 - 0.9 * done),
        "entropy": (3.0 + 0.4 * done if stage == "opsd" else 3.4 - 1.1 * done) + noise(0.08),
        "length/mean": 190 + (10 if stage == "opsd" else 45) * done + noise(9),
        "truncated": max(0.0, 0.12 - 0.06 * done + noise(0.03)),
        **seconds,
    }
    if stage == "opsd":
        return record | {
            "divergence": 0.06 * math.exp(-1.5 * done) + abs(noise(0.004)),
            "teacher_entropy": 2.9 + noise(0.07),
            "top1_agree": min(1, 0.78 + 0.1 * done + noise(0.02)),
        }
    return record | {
        "reward/mean": 0.26 + 0.16 * (1 - math.exp(-3 * done)) + noise(0.03),
        "reward/std": 0.1 + noise(0.01),
        "kl": 0.04 * done + abs(noise(0.003)),
        "zero_variance": 0.0,
        "unscored": 0,
        "clip_fraction": abs(noise(0.01)),
        "mismatch/mean": 1e-3 + abs(noise(2e-4)),
        "mismatch/max": 0.05 + abs(noise(0.01)),
    }


def write_lines(path: Path, records: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def make_run(
    folder: Path, *, steps: int = 30, rollouts: int = 4, heldout: int = 5, train: int = 3, samples: int = 4, words: int = 120
) -> Path:
    rng = random.Random(11)
    environments = [name_sections(make_environment(index, rng)) for index in range(train + heldout)]
    write_lines(folder / "environments/train.jsonl", environments[:train])
    write_lines(folder / "environments/heldout.jsonl", environments[train:])
    write_lines(folder / "environments/rejects.jsonl", [{"paper": "blank.tex", "reason": "no section has any text"}])
    info = {
        "command": "papergym demo --out runs/demo",
        "created": "2026-11-30T12:00:00Z",
        "versions": {"papergym": "0.1.0", "torch": "2.13.0+cpu", "python": "3.11.2"},
        "model": "smollm2-135m",
        "judge": "lexical",
        "stages": ["opsd", "grpo"],
        "general_criteria": GENERAL,
        "machine": "x86_64, 2 cores",
        "config": {"seed": 0, "optim": {"lr": 2e-4, "steps": steps}, "lora": {"rank": 32, "alpha": 64}},
    }
    (folder / "run.json").write_text(json.dumps(info), encoding="utf-8")
    for place, stage in enumerate(("opsd", "grpo")):
        start = 1.79e9 + place * (steps * 10.2 + 400)
        write_lines(folder / stage / "metrics.jsonl", [make_metrics(stage, step, steps, start, rng) for step in range(1, steps + 1)])
        records = []
        for step in range(1, steps + 1):
            for sample in range(rollouts):
                answer = make_answer(rng, environments[step % train], sample, 0.3 + 0.3 * step / steps, words)
                if stage == "opsd":
                    answer = {key: answer[key] for key in answer if key not in ("reward", "specialised", "general")}
                else:
                    answer["advantage"] = rng.gauss(0, 1)
                records.append({"step": step, **answer})
        write_lines(folder / stage / "rollouts.jsonl", records)
    for row, level in (("base", 0.28), ("opsd", 0.38), ("grpo", 0.55)):
        answers = [
            make_answer(rng, environment, sample, level, words, scored=(row, sample) != ("base", samples - 1) or index > 0)
            for index, environment in enumerate(environments[train:])
            for sample in range(samples)
        ]
        write_lines(folder / f"eval/{row}.jsonl", answers)
        (folder / f"eval/{row}.json").write_text(
            json.dumps({"row": row, "judge": "lexical", "sampling": {"temperature": 1.0}, "seconds": 31.5})
        )
    return folder


LONG_STAGES = {"sft": "", "opsd": "", "grpo": "", "opsd_grpo_1": "", "opsd_grpo_2": "opsd_grpo_1"}  # stage -> the one it went on from


def make_long_run(folder: Path, *, seeds: int = 3, steps: int = 12, heldout: int = 4, samples: int = 2) -> Path:
    """Five rows of several seeds, whose stages are below seed0, seed1, … and whose answers are joined, as the long demo leaves them."""
    rng = random.Random(12)
    make_run(folder, steps=1, heldout=heldout, samples=1)
    for stage in ("opsd", "grpo"):
        shutil.rmtree(folder / stage)
    environments = [json.loads(line) for line in (folder / "environments/heldout.jsonl").read_text().splitlines()]
    rows = {"base": 0.28, "sft": 0.3, "opsd": 0.33, "grpo": 0.5, "opsd_grpo": 0.55}
    answers: dict[str, list[dict[str, Any]]] = {row: [] for row in rows}
    for seed in range(seeds):
        for stage, after in LONG_STAGES.items():
            half = steps // 2 if stage[-1].isdecimal() else steps
            kind = "grpo" if stage in ("grpo", "opsd_grpo_2") else "opsd"
            metrics = [make_metrics(kind, step, half, 1.79e9 + 1000 * seed, rng) for step in range(1, half + 1)]
            write_lines(folder / f"seed{seed}" / stage / "metrics.jsonl", metrics)
            adapter = f"runs/long/seed{seed}/{after}/adapter" if after else None
            (folder / f"seed{seed}" / stage / "config.json").write_text(json.dumps({"model": {"path": "m", "adapter": adapter}}))
            rollouts = [make_answer(rng, environments[step % heldout], 0, 0.3, 60) | {"step": step} for step in range(1, half + 1)]
            write_lines(folder / f"seed{seed}" / stage / "rollouts.jsonl", rollouts)
        (folder / f"seed{seed}/run.json").write_text(json.dumps({"stages": list(LONG_STAGES)}))
        for row, level in rows.items():
            answers[row] += [
                make_answer(rng, environment, seed * samples + sample, level + 0.03 * seed, 60)
                | {"seed": f"seed{seed}", "entropy": 2.1 - level}
                for environment in environments
                for sample in range(samples)
            ]
    for row, records in answers.items():
        write_lines(folder / f"eval/{row}.jsonl", records)
    return folder


@pytest.fixture
def fake_run(tmp_path: Path) -> Callable[..., Path]:
    """make_run into a fresh directory called demo."""
    return lambda **options: make_run(tmp_path / "demo", **options)


@pytest.fixture
def long_run(tmp_path: Path) -> Callable[..., Path]:
    """make_long_run into a fresh directory called long."""
    return lambda **options: make_long_run(tmp_path / "long", **options)


class Chromium:
    """Speaks the DevTools protocol to one page over file descriptors 3 and 4. messages: errors and warnings of the console."""

    def __init__(self, profile: Path) -> None:
        program = shutil.which("chromium")
        if program is None:
            pytest.skip("chromium is not on PATH (Debian: apt-get install chromium)")
        flags = "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
        flags += " --disable-component-update --disable-sync --remote-debugging-pipe"
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec "$0" {flags} "--user-data-dir=$1" about:blank 3<&0 4>&1 1>/dev/null 2>/dev/null', program, str(profile)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.count, self.session, self.messages = 0, None, list[str]()
        self.requests = list[str]()
        target = next(info for info in self.call("Target.getTargets")["targetInfos"] if info["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self.count += 1
        message = {"id": self.count, "method": method, "params": params} | ({"sessionId": self.session} if self.session else {})
        self.process.stdin.write(json.dumps(message).encode() + b"\0")  # type: ignore[union-attr]
        self.process.stdin.flush()  # type: ignore[union-attr]
        while (reply := self._receive()).get("id") != self.count:
            pass
        assert "error" not in reply, f"{method}: {reply['error']}"
        return reply["result"]

    def _receive(self) -> dict[str, Any]:
        data = bytearray()
        while (byte := self.process.stdout.read(1)) != b"\0":  # type: ignore[union-attr]
            assert byte, "chromium ended"
            data += byte
        message = json.loads(data)
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.messages.append(params["exceptionDetails"].get("exception", {}).get("description") or params["exceptionDetails"]["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.messages.append(str(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.messages.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        return message

    def evaluate(self, expression: str) -> Any:
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def open(self, path: Path, view: str = "overview", width: int = 1280, height: int = 900, scheme: str = "light") -> None:
        """Loads the page afresh and waits until two frames are drawn."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=f"{path.as_uri()}#{view}")
        self.evaluate("new Promise(done => document.readyState === 'complete' ? done() : addEventListener('load', done))")
        self.frame()

    def frame(self) -> None:
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def press(self, key: str) -> None:
        for kind in ("rawKeyDown", "keyUp"):
            code = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Tab": 9, "End": 35, "Home": 36}[key]
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)
        self.frame()

    def close(self) -> None:
        self.process.stdin.close()  # type: ignore[union-attr]  # chromium ends when its pipe does
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()  # type: ignore[union-attr]


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    browser = Chromium(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()
