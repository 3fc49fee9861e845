"""Twenty-four varied prompts: explanation, code, maths, lists, dialogue, other languages, oddities."""

from __future__ import annotations

PROMPTS = (
    "Explain why the sky is blue.",
    "Write a Python function that returns the n-th Fibonacci number.",
    "What is 17 times 24? Show your work.",
    "List five animals that live in the desert.",
    "Tell me a short story about a lighthouse keeper.",
    "Translate 'good morning, my friend' into French.",
    "What is the capital of Australia?",
    "Write a haiku about rain.",
    "How do I boil an egg?",
    "Summarize the plot of Romeo and Juliet in two sentences.",
    "Give me three reasons to learn a second language.",
    "Write a SQL query that counts the rows of a table named users.",
    "A train leaves at 3 pm and travels 60 miles per hour for 2 hours. How far does it go?",
    "What does HTTP status code 404 mean?",
    "Describe the taste of a lemon to someone who has never eaten one.",
    "Write a polite e-mail asking for a day off.",
    "Who wrote 'Pride and Prejudice'?",
    "Convert 100 degrees Fahrenheit to Celsius.",
    "Give me a recipe for pancakes.",
    "¿Qué es la fotosíntesis?",
    "Write a JavaScript loop that prints the numbers from 1 to 10.",
    "Count backwards from ten to one.",
    "What are the pros and cons of remote work?",
    "🌵 What is this plant, and where does it grow?",
)


def chat(prompt: str) -> list[dict[str, str]]:
    """As a user's only message."""
    return [{"role": "user", "content": prompt}]
