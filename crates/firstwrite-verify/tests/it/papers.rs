//! The published rules are the ones that are kept.

use std::fmt::Write as _;

use firstwrite_verify::CHECKS;

#[test]
fn every_check_is_in_the_docs() {
    let page = include_str!("../../../../docs/verify.md");
    let (_, rest) = page.split_once("<!-- checks:begin -->\n").expect("the table begins");
    let (table, _) = rest.split_once("<!-- checks:end -->").expect("the table ends");
    let mut expected = String::from("| check | at worst | expected | to mend it |\n");
    expected.push_str("| --- | --- | --- | --- |\n");
    for check in CHECKS {
        let (id, severity) = (check.id, check.severity);
        writeln!(expected, "| `{id}` | {severity} | {} | {} |", check.expected, check.fix).unwrap();
    }
    assert_eq!(table, expected);
}
