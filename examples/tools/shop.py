"""Tools for a model that sells: prices to look up, and a calculator."""

import ast
import operator

NAMES = (
    *("anis", "bean", "cake", "date", "eggs", "figs", "gum", "ham", "jam", "kale", "lime", "mint", "nuts", "oats"),
    *("peas", "rice", "soup", "tea", "veal", "wine", "yams"),
)
PRICES = {name: 2 + 7 * place % 8 for place, name in enumerate(NAMES)}
OPERATIONS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}


def price(item: str) -> int:
    """Look up the price of one.

    Args:
        item: the name
    """
    return PRICES[item]


def calculate(sum: str) -> int:
    """Work out a sum.

    Args:
        sum: like 2*3
    """
    return _value(ast.parse(sum, mode="eval").body)


def _value(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
        return int(OPERATIONS[type(node.op)](_value(node.left), _value(node.right)))
    raise ValueError("only whole numbers with +, - and *")
