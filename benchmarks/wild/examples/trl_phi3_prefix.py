"""
package: trl
function: chat_templates/phi3_training.jinja
suite: chat_template_laws
law: prefix
judgement: documented choice
other side: the template is the original model's, and the package's page promises only marks of the model's messages
  for it.
why: the end token is written after the last message alone, so that the rendering of a conversation's beginning does
  not begin that of the whole: training on whole conversations never shows it after earlier turns.
"""

import importlib.util
from pathlib import Path

from transformers.utils.chat_template_utils import render_jinja_template

folder = Path(importlib.util.find_spec("trl").origin).parent / "chat_templates"
template = (folder / "phi3_training.jinja").read_text()
talk = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
part, whole = (
    render_jinja_template([talk[:count]], chat_template=template, eos_token="</s>", bos_token="<s>")[0][0]
    for count in (2, 3)
)
print(repr(part), repr(whole))
assert not whole.startswith(part)
