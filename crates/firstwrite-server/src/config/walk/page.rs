//! The reference of settings, `docs/settings.md`, read back.

/// The page.
pub(super) struct Page(Vec<Heading>);

/// One section of the page.
pub(super) struct Heading {
    pub(super) title: &'static str,
    pub(super) rows: Vec<Row>,
}

/// One setting.
#[derive(Clone)]
pub(super) struct Row {
    pub(super) name: String,
    /// True if it is a section with rows of its own.
    pub(super) is_section: bool,
    /// As it would be written in a file, if the page says so.
    default: Option<&'static str>,
}

const PAGE: &str = include_str!("../../../../../docs/settings.md");

/// The section whose settings every kind of destination has, and the beginning of the kinds' titles.
const EVERY_KIND: &str = "`[destinations.NAME]`, every kind";
const OF_A_KIND: &str = "`[destinations.NAME]`, `kind = ";

impl Page {
    pub(super) fn read() -> Self {
        let parts = PAGE.split("\n## ").skip(1);
        let heading = |part: &'static str| {
            let (title, text) = part.split_once('\n').unwrap();
            let rows = text.lines().filter(|line| line.starts_with("| `")).map(Row::read);
            Heading { title, rows: rows.collect() }
        };
        let mut sections: Vec<Heading> = parts.map(heading).collect();
        let every = sections.iter().position(|heading| heading.title == EVERY_KIND).unwrap();
        let every = sections.remove(every).rows;
        for heading in &mut sections {
            if heading.title.starts_with(OF_A_KIND) {
                heading.rows.extend_from_slice(&every);
            }
        }
        Self(sections)
    }

    pub(super) fn sections(&self) -> &[Heading] {
        &self.0
    }

    pub(super) fn default_of(&self, title: &str, name: &str) -> Option<&'static str> {
        let heading = self.0.iter().find(|heading| heading.title == title)?;
        heading.rows.iter().find(|row| row.name == name)?.default
    }
}

impl Heading {
    pub(super) fn has(&self, name: &str) -> bool {
        self.rows.iter().any(|row| row.name == name)
    }
}

impl Row {
    /// `| name | type | default | meaning |`
    fn read(line: &'static str) -> Self {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [name, form, default, ..] = cells[..] else { panic!("{line}") };
        let quoted = |text: &'static str| text.strip_prefix('`')?.strip_suffix('`');
        let name = quoted(name).unwrap_or_else(|| panic!("{line}")).to_owned();
        Self { name, is_section: form == "section", default: quoted(default) }
    }
}
