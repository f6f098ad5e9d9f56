//! A page of Markdown as HTML: the few forms that the pages of problems use.

use super::links;

/// The whole page.
pub(super) fn of_page(markdown: &str) -> String {
    let title = markdown.lines().next().unwrap_or_default().trim_start_matches("# ");
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{}</title>\n",
        escaped(title)
    );
    for block in markdown.split("\n\n") {
        html.push_str(&of_block(block.trim()));
        html.push('\n');
    }
    html
}

fn of_block(block: &str) -> String {
    if let Some(heading) = block.strip_prefix("## ") {
        return format!("<h2>{}</h2>", of_line(heading));
    }
    if let Some(heading) = block.strip_prefix("# ") {
        return format!("<h1>{}</h1>", of_line(heading));
    }
    if block.starts_with("- ") {
        let items = block.split("\n- ").map(|item| of_line(item.trim_start_matches("- ")));
        return format!("<ul>{}</ul>", joined(items, "li"));
    }
    if block.starts_with('|') {
        return format!("<table>{}</table>", of_table(block));
    }
    format!("<p>{}</p>", of_line(block))
}

fn of_table(block: &str) -> String {
    let rows = block.lines().filter(|row| !row.starts_with("| ---"));
    let rows = rows.enumerate().map(|(index, row)| {
        let cells = row.trim_matches('|').split(" | ").map(|cell| of_line(cell.trim()));
        joined(cells, if index == 0 { "th" } else { "td" })
    });
    joined(rows, "tr")
}

fn joined(parts: impl Iterator<Item = String>, element: &str) -> String {
    let parts: Vec<String> = parts.map(|part| format!("<{element}>{part}</{element}>")).collect();
    parts.concat()
}

/// Text with code, emphasis and links in it.
fn of_line(text: &str) -> String {
    // What stands between backquotes is every second part, and is taken as it is.
    let parts = text.split('`').enumerate().map(|(index, part)| {
        if index % 2 == 1 { format!("<code>{}</code>", escaped(part)) } else { escaped(part) }
    });
    let text = marked(&parts.collect::<String>(), "**", "strong");
    linked(&marked(&text, "*", "em"))
}

fn marked(text: &str, mark: &str, element: &str) -> String {
    let parts: Vec<&str> = text.split(mark).collect();
    if parts.len().is_multiple_of(2) {
        return text.to_owned();
    }
    let marked = parts.into_iter().enumerate().map(|(index, part)| {
        if index % 2 == 1 { format!("<{element}>{part}</{element}>") } else { part.to_owned() }
    });
    marked.collect()
}

fn linked(text: &str) -> String {
    links::rewritten(text, |name, code| match code {
        Some(code) => format!("<a href=\"{code}\">{name}</a>"),
        None => name.to_owned(),
    })
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_becomes_html() {
        let page = "# a (400)\n\n**B.**\n\n## C\n\nd `<e>` *f* [g](g.md) [h](../h.md#i)\nj\n\n- k\n- l\n\n| m | n |\n| --- | --- |\n| o | p |\n";
        let html = of_page(page);
        let expected = "<h1>a (400)</h1>\n<p><strong>B.</strong></p>\n<h2>C</h2>\n\
                        <p>d <code>&lt;e&gt;</code> <em>f</em> <a href=\"g\">g</a> h\nj</p>\n\
                        <ul><li>k</li><li>l</li></ul>\n\
                        <table><tr><th>m</th><th>n</th></tr><tr><td>o</td><td>p</td></tr></table>\n";
        assert!(html.ends_with(expected), "{html}");
    }
}
