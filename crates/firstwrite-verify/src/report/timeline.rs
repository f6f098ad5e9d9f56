//! The racing requests as a picture: a line each, from the last byte sent to the first byte back.

use std::fmt::Write as _;
use std::time::Duration;

use super::junit::{INFALLIBLE, escaped};
use crate::timeline::Exchange;

/// Scenes in which requests meet.
const DRAWN: [&str; 3] = ["race", "two bodies", "in flight"];
/// Largest number of lines in a picture: more are unreadable.
const LINES_MAX: usize = 80;

const WIDTH: f64 = 900.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 110.0;
const LINE: f64 = 14.0;
const TOP: f64 = 26.0;

/// One picture for each scene that has something to show: its name and its SVG.
pub(super) fn pictures(exchanges: &[Exchange]) -> Vec<(&'static str, String)> {
    DRAWN
        .iter()
        .filter_map(|&scene| {
            let lines: Vec<&Exchange> =
                exchanges.iter().filter(|one| one.scene == scene).take(LINES_MAX).collect();
            (!lines.is_empty()).then(|| (scene, picture(scene, &lines)))
        })
        .collect()
}

fn picture(scene: &str, lines: &[&Exchange]) -> String {
    let start = lines.iter().map(|line| line.began).min().unwrap_or_default();
    let end = lines.iter().map(|line| line.heard).max().unwrap_or_default();
    let whole = (end.saturating_sub(start)).max(Duration::from_micros(1)).as_secs_f64();
    let place = |time: Duration| {
        LEFT + time.saturating_sub(start).as_secs_f64() / whole * (WIDTH - LEFT - RIGHT)
    };
    let rows = u32::try_from(lines.len()).unwrap_or(u32::MAX);
    let height = TOP + f64::from(rows) * LINE + 22.0;
    let mut svg = String::new();
    write!(
        svg,
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\"><title>{} requests of the scene {}: when each \
         was sent and answered</title>",
        lines.len(),
        escaped(scene)
    )
    .expect(INFALLIBLE);
    for tick in 0..=4_u32 {
        let x = LEFT + f64::from(tick) / 4.0 * (WIDTH - LEFT - RIGHT);
        let at = whole * 1e3 * f64::from(tick) / 4.0;
        write!(
            svg,
            "<line class=\"tick\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/>\
             <text class=\"axis\" x=\"{x:.1}\" y=\"14\" text-anchor=\"middle\">{at:.0} ms</text>",
            TOP - 6.0,
            height - 16.0
        )
        .expect(INFALLIBLE);
    }
    for (row, line) in (0_u32..).zip(lines) {
        let y = TOP + f64::from(row) * LINE;
        let (began, sent, heard) = (place(line.began), place(line.sent), place(line.heard));
        let (class, status) = match line.status {
            Some(status @ 200..300) => ("ran", status.to_string()),
            Some(status @ 400..500) => ("refused", status.to_string()),
            Some(status) => ("failed", status.to_string()),
            None => ("failed", "no answer".to_owned()),
        };
        write!(
            svg,
            "<text class=\"axis\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">request {}</text>\
             <line class=\"way\" x1=\"{began:.1}\" x2=\"{sent:.1}\" y1=\"{m:.1}\" y2=\"{m:.1}\"/>\
             <rect class=\"{class}\" x=\"{sent:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"2\"/>\
             <text class=\"status\" x=\"{:.1}\" y=\"{:.1}\">{status}</text>",
            LEFT - 6.0,
            y + 9.0,
            row + 1,
            y + 1.5,
            (heard - sent).max(2.0),
            LINE - 4.0,
            heard.max(sent + 2.0) + 4.0,
            y + 9.0,
            m = y + LINE / 2.0 - 1.0,
        )
        .expect(INFALLIBLE);
    }
    svg.push_str("</svg>");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_a_line_with_its_status() {
        let at = Duration::from_millis;
        let exchange =
            |scene, status| Exchange { scene, began: at(10), sent: at(11), heard: at(20), status };
        let exchanges = [
            exchange("race", Some(201)),
            exchange("race", Some(409)),
            exchange("race", None),
            exchange("key", Some(400)),
        ];
        let pictures = pictures(&exchanges);
        assert_eq!(pictures.len(), 1, "only scenes in which requests meet");
        let (name, svg) = &pictures[0];
        assert_eq!(*name, "race");
        for expected in [">201<", ">409<", ">no answer<", "class=\"refused\"", "request 3", "10 ms"]
        {
            assert!(svg.contains(expected), "{expected} in {svg}");
        }
        assert!(!svg.contains(">400<"));
    }
}
