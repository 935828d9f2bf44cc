"""Reads a page of `heddle view`, strictly: what it refuses to read is wrong."""
import html.parser

VOID = {"meta"}
TAGS = {"html", "head", "meta", "title", "style", "body", "header", "h1", "h2", "p", "b", "a", "code",
        "section", "div", "mark", "table", "tr", "th", "td", "svg", "rect", "text", "line", "script"}


class Element:
    def __init__(self, tag, attributes, parent):
        self.tag, self.attributes, self.parent, self.parts = tag, attributes, parent, []

    def __getitem__(self, name):
        return self.attributes.get(name, "")

    @property
    def text(self):
        return "".join(p if isinstance(p, str) else p.text for p in self.parts)

    @property
    def classes(self):
        return self["class"].split()

    def find(self, tag=None, **wanted):
        """Those within it, of this tag and with these attributes (`cls` is a class)."""
        for part in self.parts:
            if isinstance(part, str):
                continue
            cls = wanted.get("cls")
            if (tag in (None, part.tag) and (cls is None or cls in part.classes)
                    and all(part[k] == v for k, v in wanted.items() if k != "cls")):
                yield part
            yield from part.find(tag, **wanted)


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.root = self.at = Element("", {}, None)
        self.ids = set()
        self.feed(text)
        self.close()
        assert self.at is self.root, f"<{self.at.tag}> is not closed"
        self.lines = {e["id"]: e for e in self.root.find("div", cls="line")}
        self.bars = list(self.root.find("rect", cls="bar"))

    def handle_decl(self, decl):
        assert decl == "DOCTYPE html", decl

    def handle_comment(self, data):
        raise AssertionError(f"a comment: {data}")

    handle_pi = unknown_decl = handle_comment

    def handle_starttag(self, tag, pairs):
        inner = tag == "title" and self.at.tag == "rect"
        assert tag in TAGS or inner, f"a <{tag}>"
        attributes = dict(pairs)
        assert len(attributes) == len(pairs), f"an attribute of <{tag}> stands twice"
        self.check(tag, attributes)
        element = Element(tag, attributes, self.at)
        self.at.parts.append(element)
        if tag not in VOID:
            self.at = element

    def handle_startendtag(self, tag, pairs):
        self.handle_starttag(tag, pairs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert tag == self.at.tag, f"</{tag}> in <{self.at.tag}>"
        self.at = self.at.parent

    def handle_data(self, data):
        self.at.parts.append(data)

    def check(self, tag, attributes):
        """Nothing is fetched, and nothing runs but the page's own script."""
        for name, value in attributes.items():
            assert not name.startswith("on") and name not in ("src", "srcset", "style", "action"), name
            assert name not in ("href", "xlink:href") or value[0] == "#", value
        if "id" in attributes:
            assert attributes["id"] not in self.ids, f"id {attributes['id']} stands twice"
            self.ids.add(attributes["id"])
