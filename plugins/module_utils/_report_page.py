# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What the parts of the report's page share: signs, tables, style, script. Pure."""

from __future__ import annotations

import json
import re
from html import escape
from typing import Any, Iterable, Mapping, Sequence

SIGNS = {"pass": "✓", "fail": "✗", "not_measured": "?", "": "·"}
WORDS = {"pass": "Passed", "fail": "Failed", "not_measured": "Not measured", "": "None"}

# Above so many nodes the maps have a row for each rack, which opens.
NODES_ONE_BY_ONE = 64

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_PLAIN = re.compile(r"[^0-9A-Za-z_-]+")

# Colours of Okabe and Ito, which people with any colour vision can tell apart; dark text on light.
STYLE = """
:root{--bad:#d55e00;--line:#bbb;--soft:#555}
*{box-sizing:border-box}
body{font:15px/1.45 system-ui,sans-serif;margin:0;color:#111;background:#fff}
header,main,nav{max-width:84rem;margin:0 auto;padding:0 1.2rem}
h1{font-size:1.7rem;margin:1.2rem 0 .3rem}h2{font-size:1.3rem;border-bottom:2px solid #111;
margin:2.2rem 0 .8rem;padding-bottom:.15rem}h3{font-size:1.05rem;margin:1.2rem 0 .4rem}
h4{font-size:1rem;margin:0}p{margin:.4rem 0}small,.src{color:var(--soft);font-weight:400;
font-size:.85rem}code,pre{font:.85rem/1.4 ui-monospace,monospace}pre{white-space:pre-wrap;
overflow-wrap:anywhere;margin:.3rem 0}
.skip{position:absolute;left:-99rem}.skip:focus{left:1rem;top:.5rem;background:#fff;padding:.5rem;
z-index:9}
:focus-visible{outline:3px solid #0072b2;outline-offset:2px}
nav{position:sticky;top:0;background:#fff;z-index:5;border-bottom:1px solid var(--line)}
nav ul{display:flex;flex-wrap:wrap;gap:.2rem 1rem;list-style:none;padding:.5rem 0;margin:0}
nav b{background:#111;color:#fff;border-radius:.7em;padding:0 .45em;font-size:.8rem}
section{scroll-margin-top:5rem}.node,article{scroll-margin-top:6rem}
a{color:#004e7c}
.verdict{font-size:1.3rem;font-weight:700;display:inline-block;padding:.25rem .9rem;
border:2px solid #111;margin:.2rem 0}
.verdict.fail{background:var(--bad);color:#fff;border-radius:1rem}
.verdict.pass{background:#cfe6f5}.verdict.not_measured{border-style:dashed}
.sim{background:#f0e442;border:1px solid #111;padding:0 .4em;font-size:.85rem;font-weight:400}
p.sim{padding:.4em .7em;font-size:1rem;width:fit-content}
.tiles{display:flex;flex-wrap:wrap;gap:.7rem}.tile{border:2px solid var(--line);padding:.5rem 1rem;
min-width:8.5rem}.tile b{display:block;font-size:1.5rem}
.tile.fail{border-color:var(--bad);border-width:3px}.tile.not_measured{border-style:dashed;
border-color:#111}.tile.pass{background:#e6f2fa}
.question{border-left:6px solid #e69f00;padding:.4rem .8rem;background:#fdf6e3}
table{border-collapse:collapse;margin:.5rem 0}th,td{padding:.15rem .6rem;text-align:left;
vertical-align:top;border-bottom:1px solid #ddd}thead th{border-bottom:2px solid #111}
caption{text-align:left;color:var(--soft);font-size:.85rem;padding-bottom:.2rem}
.num td:not(:first-child),.num th:not(:first-child){text-align:right}
.wide{overflow-x:auto;max-width:100%}
.tall{max-height:36rem;overflow:auto;width:fit-content;border-bottom:1px solid var(--line);
padding-right:1rem}.tall thead th{position:sticky;top:0;
background:#fff}
.racks.small{gap:.45rem}.small .rack{min-width:4.4rem;padding:.1rem}.small .box{font-size:.75rem;
margin:.06rem 0;padding:0 .2rem}
.sg{font-weight:700;margin-right:.3em}.sg.fail{color:#a34700}
.node{border-left:4px solid var(--bad);padding-left:.9rem;margin:1.1rem 0}
.finding{border:1px solid var(--line);padding:.5rem .8rem;margin:.5rem 0;max-width:70rem}
.do{background:#e6f2fa;padding:.25rem .5rem}
details>summary{cursor:pointer;padding:.15rem 0}.group{border-bottom:1px solid #ddd}
.racks{display:flex;flex-wrap:wrap;gap:.9rem;align-items:flex-end}
.rack{border:2px solid #444;padding:.25rem;min-width:7.2rem}.rack h3{margin:0 0 .2rem;
font-size:.85rem;text-align:center}
.box{display:block;padding:.05rem .35rem;margin:.12rem 0;border:1px solid #888;font-size:.82rem;
color:#111;text-decoration:none;white-space:nowrap}
.box.pass{background:#cfe6f5}.box.fail{background:var(--bad);color:#fff;border:2px solid #111;
border-radius:.7em;font-weight:700}.box.not_measured{border-style:dashed;border-color:#111}
.box small{color:inherit}
.heat td,.heat th{padding:.1rem .3rem;border:1px solid #fff;font-size:.8rem;text-align:center;
font-variant-numeric:tabular-nums}.heat th{white-space:nowrap;text-align:left;font-weight:400}
.heat thead th{font-weight:700;text-align:center}
.q0{background:#fff}.q1{background:#eaf4fb}.q2{background:#cfe6f5}.q3{background:#a6d0ec}
.q4{background:#7ab8e0}
.heat td.none{color:#767676}.heat td.fail{background:var(--bad);color:#fff;font-weight:700;
border:2px solid #111;border-radius:.7em}
.heat td.not_measured,i.not_measured{background:repeating-linear-gradient(45deg,#fff 0 4px,
#ddd 4px 6px);font-weight:700}
.heat td.out{border:2px solid #111;font-weight:700}.heat td.pass{background:#e6f2fa}
button.row{font:inherit;background:none;border:0;padding:0;color:#004e7c;cursor:pointer;
text-decoration:underline}tr.of td,tr.of th{border-bottom-color:#ccc}tr.of th{padding-left:1.4rem}
.key{display:flex;flex-wrap:wrap;gap:.3rem 1.2rem;font-size:.85rem;align-items:center}
.key i{display:inline-block;width:1.7em;height:1.5em;padding:0;text-align:center;font-style:normal;
border:1px solid #999}
@media print{nav,.skip,#filter{display:none}details{display:block}.finding{break-inside:avoid}}
"""

# Opens the racks of a large cluster's heat maps, and filters the findings. Texts are only ever put
# in as text.
SCRIPT = """
(function(){
'use strict';
var data=JSON.parse(document.getElementById('data').textContent);
function mark(map,value){var a=map.cut,i=0;while(i<a.length&&value>=a[i])i++;return 'q'+i;}
document.addEventListener('click',function(event){
 var button=event.target.closest('button.row');if(!button)return;
 var row=button.closest('tr'),map=data.maps[button.dataset.map],open=
  button.getAttribute('aria-expanded')==='true',next=row.nextElementSibling;
 button.setAttribute('aria-expanded',String(!open));
 if(open){while(next&&next.className==='of'){var gone=next;next=next.nextElementSibling;
  gone.remove();}return;}
 var after=row;
 data.racks[button.dataset.rack].forEach(function(node){
  var line=document.createElement('tr'),head=document.createElement('th');
  line.className='of';head.scope='row';head.textContent=node;line.appendChild(head);
  var values=map.values[node]||[];
  for(var gpu=0;gpu<map.wide;gpu++){
   var cell=document.createElement('td'),value=values[gpu];
   if(value===undefined||value===null){cell.className='none';cell.textContent='\\u00b7';
    cell.title='no figure';}
   else{var bad=(map.failed[node]||[]).indexOf(gpu)>=0;
    cell.className=bad?'fail':mark(map,value);
    cell.textContent=(bad?'\\u2717 ':'')+value.toLocaleString('en',{maximumFractionDigits:1});}
   line.appendChild(cell);}
  after.after(line);after=line;});
});
var filter=document.getElementById('filter');
if(filter)filter.addEventListener('input',function(){
 var word=filter.value.toLowerCase(),shown=0;
 document.querySelectorAll('.node').forEach(function(node){
  var any=false,name=node.querySelector('h3').textContent.toLowerCase();
  node.querySelectorAll('.finding').forEach(function(one){
   var hit=name.indexOf(word)>=0||one.textContent.toLowerCase().indexOf(word)>=0;
   one.hidden=!hit;if(hit){any=true;shown++;}});
  node.hidden=!any;});
 document.getElementById('filtered').textContent=word?shown+' shown':'';
});
})();
"""


def clean(text: object) -> str:
    """Return a text without what would move or hide its neighbours: control and bidi characters."""
    return _CONTROL.sub("\ufffd", str(text))


def esc(text: object) -> str:
    """Return a text as HTML."""
    return escape(clean(text))


def anchor(kind: str, name: str) -> str:
    """Return the id of a part of the page."""
    return f"{kind}-{_PLAIN.sub('_', name)}"


def sign(status: str) -> str:
    """Return the sign of a state, which is never its colour alone."""
    if not status:
        return ""
    return f'<span class="sg {status}" aria-hidden="true">{SIGNS[status]}</span>'


def number(value: float) -> str:
    """Return a figure with as many digits as one reads."""
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.3g}"


def figure(found: Mapping[str, Any]) -> str:
    """Return a measured value with its unit, as HTML."""
    value = found["value"]
    if isinstance(value, float):
        value = f"{value:g}"
    return esc(f"{value} {found['unit']}".strip())


def cells(values: Iterable[str], kind: str = "td") -> str:
    """Return cells of a row; the values are HTML."""
    return "".join(f"<{kind}>{value}</{kind}>" for value in values)


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], caption: str, numbers: bool = False
) -> str:
    """Return a table that scrolls by itself; rows are HTML, head and caption are texts."""
    kind = ' class="num"' if numbers else ""
    top = "".join(f'<th scope="col">{esc(name)}</th>' for name in head)
    body = "".join(f"<tr>{cells(row)}</tr>\n" for row in rows)
    told = f"<caption>{esc(caption)}</caption>" if caption else ""
    return (
        f"<div class=wide><table{kind}>{told}"
        f"{f'<thead><tr>{top}</tr></thead>' if head else ''}<tbody>{body}</tbody></table></div>"
    )


def cuts(values: Sequence[float]) -> list[float]:
    """Return the four values at which the next stronger colour begins: equal steps, no more."""
    if not values:
        return []
    low, high = min(values), max(values)
    if high == low:
        # One colour in the middle.
        return [low, low]
    return [low + (high - low) * step / 5 for step in range(1, 5)]


def shade(cut: Sequence[float], value: float) -> str:
    """Return the class of a value, as the script does."""
    return f"q{sum(value >= one for one in cut)}"


def wide(report: Mapping[str, Any]) -> bool:
    """Tell whether the cluster is too large for a row for each node."""
    return len(report["nodes"]) > NODES_ONE_BY_ONE


def racks_of(report: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the nodes by rack, the highest first; those without one are together."""
    racks: dict[str, list[Mapping[str, Any]]] = {}
    for node in report["nodes"]:
        racks.setdefault(str(node["rack"] or "no rack"), []).append(node)
    for some in racks.values():
        some.sort(key=lambda one: (-(one["rack_unit"] or 0), one["name"]))
    return dict(sorted(racks.items()))


def json_script(report: Mapping[str, Any]) -> str:
    """Return what the script needs, as an element that cannot end early."""
    data: dict[str, Any] = {"maps": {}, "racks": {}}
    if wide(report):
        data["racks"] = {
            rack: [one["name"] for one in some] for rack, some in racks_of(report).items()
        }
        bad = failed_gpus(report)
        for check, one in report["maps"].items():
            values = one["values"]
            every = [value for row in values.values() for value in row if value is not None]
            data["maps"][check] = {
                "cut": cuts(every),
                "wide": max(map(len, values.values()), default=0),
                "values": {
                    node: [None if value is None else round(value, 2) for value in row]
                    for node, row in values.items()
                },
                "failed": {
                    node: sorted(gpus) for (which, node), gpus in bad.items() if which == check
                },
            }
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True)
    text = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return f'<script type="application/json" id="data">{text}</script>\n'


def failed_gpus(report: Mapping[str, Any]) -> dict[tuple[str, str], set[int]]:
    """Return the numbers of the GPUs that fail a check, by check and node."""
    found: dict[tuple[str, str], set[int]] = {}
    for one in report["failed"]:
        kind, _colon, name = one["subject"].partition(":")
        node, _slash, place = name.partition("/")
        if kind == "gpu" and place.isdigit():
            found.setdefault((one["check"], node), set()).add(int(place))
    return found
