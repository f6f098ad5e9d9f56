//! The structs and enums of a file of settings, read from their source. The formatter has been there: one field a
//! line, attributes and doc comments on lines of their own.

/// A struct that a section of a settings file is read into.
#[derive(Debug)]
pub(super) struct Struct {
    pub(super) name: String,
    /// True if it refuses unknown settings, as every section does.
    pub(super) is_section: bool,
    pub(super) fields: Vec<Field>,
}

#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: String,
    /// Its type, as it is written.
    pub(super) kind: String,
    /// True if it may be left out, whatever its type.
    pub(super) has_default: bool,
    /// Its doc comment, in one line.
    pub(super) text: String,
}

/// An enum, with its variants as a file writes them.
#[derive(Debug)]
pub(super) struct Words {
    pub(super) name: String,
    pub(super) variants: Vec<String>,
}

#[derive(Debug, Default)]
pub(super) struct Source {
    pub(super) structs: Vec<Struct>,
    pub(super) words: Vec<Words>,
}

/// The declaration that a line is part of.
enum Open {
    Nothing,
    Struct(Struct),
    Enum(Words, Style),
}

/// The form in which serde writes the names of variants.
#[derive(Clone, Copy)]
enum Style {
    AsIs,
    Lower,
    Divided(char),
}

impl Source {
    pub(super) fn read(text: &str) -> Self {
        let mut source = Self::default();
        let (mut open, mut attributes, mut docs) = (Open::Nothing, String::new(), Vec::new());
        for line in text.lines() {
            let words = line.trim();
            if let Some(doc) = words.strip_prefix("///") {
                docs.push(doc.trim());
                continue;
            }
            if words.starts_with("#[") {
                attributes.push_str(words);
                continue;
            }
            open = match (open, line) {
                (Open::Struct(done), "}") => {
                    source.structs.push(done);
                    Open::Nothing
                }
                (Open::Enum(done, _), "}") => {
                    source.words.push(done);
                    Open::Nothing
                }
                (Open::Struct(mut open), _) => {
                    open.fields.extend(field(words, &attributes, &docs));
                    Open::Struct(open)
                }
                (Open::Enum(mut open, style), _) => {
                    open.variants.extend(variant(words, style));
                    Open::Enum(open, style)
                }
                (Open::Nothing, _) => opened(line, &attributes),
            };
            attributes.clear();
            docs.clear();
        }
        source
    }
}

/// The struct or enum that begins with this line.
fn opened(line: &str, attributes: &str) -> Open {
    let name = |kind: &str| {
        let (before, rest) = line.split_once(kind)?;
        let is_head = before.is_empty() || before.starts_with("pub");
        rest.strip_suffix(" {").filter(|_| is_head).map(str::to_owned)
    };
    if let Some(name) = name("struct ") {
        let is_section = attributes.contains("deny_unknown_fields");
        return Open::Struct(Struct { name, is_section, fields: Vec::new() });
    }
    let style = match attributes.split_once("rename_all = \"") {
        Some((_, style)) if style.starts_with("snake") => Style::Divided('_'),
        Some((_, style)) if style.starts_with("kebab") => Style::Divided('-'),
        Some(_) => Style::Lower,
        None => Style::AsIs,
    };
    match name("enum ") {
        Some(name) => Open::Enum(Words { name, variants: Vec::new() }, style),
        None => Open::Nothing,
    }
}

/// A field that is a setting. One that is neither read with the rest nor described is none.
fn field(words: &str, attributes: &str, docs: &[&str]) -> Option<Field> {
    if attributes.contains("serde(skip)") && docs.is_empty() {
        return None;
    }
    let (name, kind) = words.strip_suffix(',')?.split_once(": ")?;
    Some(Field {
        name: name.rsplit(' ').next().unwrap_or(name).to_owned(),
        kind: kind.to_owned(),
        has_default: attributes.contains("serde(default") || attributes.contains("serde(skip)"),
        text: docs.join(" "),
    })
}

/// A variant as a file writes it: a text, or a table where it holds something.
fn variant(words: &str, style: Style) -> Option<String> {
    let words = words.strip_suffix(',')?;
    let (name, holds) = words.split_once('(').map_or((words, false), |(name, _)| (name, true));
    let mut written = String::new();
    for c in name.chars() {
        match style {
            Style::Divided(divider) if c.is_uppercase() && !written.is_empty() => {
                written.push(divider);
                written.extend(c.to_lowercase());
            }
            Style::Divided(_) | Style::Lower => written.extend(c.to_lowercase()),
            Style::AsIs => written.push(c),
        }
    }
    Some(if holds { format!("`{{ {written} = … }}`") } else { format!("`\"{written}\"`") })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
/// A section.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkSection {
    /// Time that it
    /// takes. Default: `"5s"`.
    pub(crate) every: Option<Span>,
    #[serde(default = "form::both")]
    list: Vec<String>,
    // No setting.
    #[serde(skip)]
    part: Part,
}

#[derive(Debug)]
struct Other {
    it: u8,
}

#[serde(rename_all = "snake_case")]
enum Conflict {
    #[default]
    RejectIt,
    Wait(Span),
}
"#;

    #[test]
    fn sections_and_words_are_read() {
        let source = Source::read(TEXT);
        let [work, other] = &source.structs[..] else { panic!("{source:?}") };
        assert!(work.is_section && !other.is_section);
        let [every, list] = &work.fields[..] else { panic!("{work:?}") };
        assert_eq!((&*every.name, &*every.kind), ("every", "Option<Span>"));
        assert_eq!(every.text, "Time that it takes. Default: `\"5s\"`.");
        assert!(!every.has_default && list.has_default && list.text.is_empty());
        assert_eq!(source.words[0].variants, ["`\"reject_it\"`", "`{ wait = … }`"]);
    }
}
