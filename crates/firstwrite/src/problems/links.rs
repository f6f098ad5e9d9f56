//! Links of the pages: those to other pages of problems lead there, and what stands elsewhere in the
//! documentation is not served, so that its name stands alone.

/// Rewrites each link of a page in Markdown: `write` gets its name and, where it leads to another page of
/// problems, that page's code.
pub(super) fn rewritten(text: &str, write: impl Fn(&str, Option<&str>) -> String) -> String {
    let mut told = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("](") {
        let (Some(open), Some((target, tail))) = (before.rfind('['), after.split_once(')')) else {
            told.push_str(before);
            told.push_str("](");
            rest = after;
            continue;
        };
        told.push_str(&before[..open]);
        told.push_str(&write(&before[open + 1..], code_of(target)));
        rest = tail;
    }
    told.push_str(rest);
    told
}

/// The page as it is served in Markdown.
pub(super) fn of_page(page: &str) -> String {
    rewritten(page, |name, code| match code {
        Some(code) => format!("[{name}]({code}.md)"),
        None => name.to_owned(),
    })
}

fn code_of(target: &str) -> Option<&str> {
    let code = target.strip_suffix(".md")?;
    (!code.contains(['/', '.']) && code != "README").then_some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_pages_stay_and_others_are_their_names() {
        let page = "`[a]` and [b](b.md), ([c `d`](../c.md#d)) [e](README.md) f]( [g](h";
        assert_eq!(of_page(page), "`[a]` and [b](b.md), (c `d`) e f]( [g](h");
    }
}
