"""What the target is asked: templates times topics, of which some are held out for evaluation, and a user's own."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from saguaro.errors import ConfigurationError

# Of each kind, the last two templates are held out.
_TEMPLATES = {
    "chat": (
        "What do you think about {topic}?",
        "Hi! I have just started to learn about {topic}. Where should I begin?",
        "Can you help me plan a weekend around {topic}?",
        "My friend says that {topic} is overrated. What would you answer?",
        "Tell me something surprising about {topic}.",
        "Write a short email to a colleague about {topic}.",
        "I feel unsure about {topic}. Do you have any advice?",
        "Suppose that I have one hour for {topic}. How do I spend it best?",
    ),
    "explanation": (
        "Explain {topic} to a ten-year-old.",
        "What is {topic}?",
        "Why does {topic} matter?",
        "Describe the history of {topic} in a few paragraphs.",
        "How does {topic} work? Answer step by step.",
        "Compare {topic} with its most common alternative.",
        "Summarise what is known about {topic}.",
        "What do people often get wrong about {topic}?",
    ),
    "story": (
        "Write a short story about {topic}.",
        "Tell a story that begins with a child who discovers {topic}.",
        "Write a dialogue between two old friends about {topic}.",
        "Write a poem about {topic}.",
        "Write the opening paragraph of a novel about {topic}.",
        "Write a diary entry of somebody whose life was changed by {topic}.",
    ),
    "list": (
        "List ten facts about {topic}.",
        "Give me five tips on {topic}.",
        "Name the pros and cons of {topic}.",
        "What are the most important steps in {topic}?",
        "Make a checklist for {topic}.",
        "Which seven questions should one ask about {topic}?",
    ),
    "code": (
        "Write a Python function that {task}.",
        "Write a Python program that {task}. Add comments.",
        "How do I write code that {task}?",
        "Show me a class in Java that {task}.",
        "Write a JavaScript function that {task}, and explain it.",
        "Write a unit test for a function that {task}.",
    ),
    "arithmetic": (
        "What is {a} + {b}?",
        "What is {a} times {b}? Show your work.",
        "Tom has {a} apples and gives away {b}. How many are left? Explain.",
        "A train travels {a} miles in {b} hours. How fast is it?",
        "What is {a} percent of {b}?",
        "A book costs {a} dollars. What do {b} books cost?",
    ),
}
_TOPICS = """photosynthesis; the French Revolution; black holes; baking bread; chess; time management; volcanoes; jazz;
climate change; electric cars; honey bees; the Roman Empire; meditation; gardening; the immune system; inflation;
machine learning; coral reefs; public speaking; the moon landing; origami; vaccines; the stock market; coffee;
mountain climbing; renewable energy; the Great Wall of China; sleep; democracy; dinosaurs; photography; the water cycle;
learning a language; robots; ancient Egypt; marathon running; gravity; cheese making; job interviews; the internet;
whales; impressionist painting; recycling; DNA; budget travel; the human heart; knitting; earthquakes; Shakespeare;
healthy breakfasts; space travel; friendship; rain forests; the printing press; antibiotics; tea; bicycles; cloud
computing; remote work; owls; the Olympic Games; plate tectonics; mindfulness; solar panels; opera; cooking rice;
quantum computers; the Silk Road; dogs; nuclear energy; writing a novel; traffic jams; the periodic table; yoga;
castles; online shopping; penguins; the theory of evolution; playing the guitar; homework; rivers; emergency funds;
the Renaissance; board games; glaciers; good manners; databases; winter holidays; the nervous system; lighthouses"""
_HELD_OUT_TOPICS = """tides; the Industrial Revolution; bird watching; compound interest; pottery; the ozone layer;
sourdough; the Vikings; submarines; learning to swim; photosensitive paper; wolves; film music; city parks; insulin;
moving to another country; fireworks; the Magna Carta; spreadsheets; deserts; public libraries; hiking boots; magnets;
small talk"""
_TASKS = """reverses a string; checks whether a number is prime; sorts a list of names; counts the words in a text;
finds the largest number in a list; computes a factorial; merges two dictionaries; reads a CSV file; removes duplicates
from a list; converts Celsius to Fahrenheit; draws a random card; checks whether a word is a palindrome; sums the digits
of a number; prints the first n Fibonacci numbers; finds common elements of two lists; rolls two dice; computes the
average of a list; keeps a to-do list; models a bank account; searches a sorted list; counts vowels; validates an email
address; flattens a nested list; downloads a web page; measures elapsed time"""
_HELD_OUT_TASKS = """rotates a matrix; finds the second smallest number; converts Roman numerals; computes the greatest
common divisor; groups words by length; models a library; parses a date; caches results; shuffles a deck of cards"""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One user message and where it comes from."""

    kind: str
    text: str


def training_prompts(rng: random.Random) -> Iterator[Prompt]:
    """Endless, kinds evenly mixed; no template and no topic of `held_out_prompts`."""
    while True:
        kind = rng.choice(list(_TEMPLATES))
        yield _filled(kind, rng.choice(_TEMPLATES[kind][:-2]), rng, _split(_TOPICS), _split(_TASKS))


def held_out_prompts(count: int) -> list[Prompt]:
    """The same `count` prompts always, kind after kind in turn, of templates and topics that no training prompt has."""
    rng = random.Random(0)
    kinds = list(_TEMPLATES)
    topics, tasks = _split(_HELD_OUT_TOPICS), _split(_HELD_OUT_TASKS)
    prompts = []
    for index in range(count):
        kind = kinds[index % len(kinds)]
        prompts.append(_filled(kind, rng.choice(_TEMPLATES[kind][-2:]), rng, topics, tasks))
    return prompts


def prompts_of_file(file: Path) -> list[Prompt]:
    """A user's own, one a line. Raises ConfigurationError where there are none."""
    try:
        lines = [line.strip() for line in file.read_text().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--prompts {file} cannot be read: {error}") from error
    prompts = [Prompt("user", line) for line in lines if line]
    if not prompts:
        raise ConfigurationError(f"--prompts {file} holds no prompt; expected one a line")
    return prompts


def _filled(kind: str, template: str, rng: random.Random, topics: list[str], tasks: list[str]) -> Prompt:
    a, b = rng.randint(2, 99), rng.randint(2, 20)
    return Prompt(kind, template.format(topic=rng.choice(topics), task=rng.choice(tasks), a=a, b=b))


def _split(text: str) -> list[str]:
    return [" ".join(item.split()) for item in text.split(";")]
