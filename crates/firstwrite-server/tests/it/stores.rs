//! `firstwrite stores`: what is shown and what is stated are told apart, and a weaker store looks weaker.

use serde_json::Value;

use crate::process::{Folder, stderr, stdout};

#[test]
fn the_table_tells_shown_from_stated_and_names_what_a_store_lacks() {
    let folder = Folder::new();
    let listed = folder.run(&["stores"]);
    assert!(listed.status.success(), "{}", stderr(&listed));
    let text = stdout(&listed);
    let lines = |store: &str| -> Vec<String> {
        let is_its = |line: &&str| line.split_whitespace().next() == Some(store);
        text.lines().filter(is_its).map(str::to_owned).collect()
    };
    let [shown, stated] = &lines("redis")[..] else { panic!("two lines of redis:\n{text}") };
    assert!(shown.contains("yes (") && shown.contains("  no  "), "{shown}");
    assert!(stated.contains("may lose") && !stated.contains('('), "{stated}");
    assert!(!lines("postgres")[0].contains("  no  "), "{text}");

    let full = stdout(&folder.run(&["stores", "redis"]));
    assert!(full.contains("NO   atomic handlers"), "{full}");
    assert!(full.contains("a fail-over: may lose, noticed."), "{full}");
    assert!(full.contains("cases of `outbox` do not apply"), "{full}");
    assert!(full.contains("docs/redis.md"), "{full}");
}

#[test]
fn machines_read_the_same_as_one_document() {
    let printed = Folder::new().run(&["stores", "--format", "json"]);
    let document: Value = serde_json::from_str(&stdout(&printed)).unwrap();
    let stores = document["stores"].as_array().unwrap();
    assert_eq!(stores.len(), 13);
    for store in stores {
        let (name, claims) = (&store["store"], store["claims"].as_array().unwrap());
        let kept = |part: &str| {
            let promises = store["shown"].as_array().unwrap();
            let starts = |one: &&Value| one["promise"].as_str().unwrap().starts_with(part);
            promises.iter().find(starts).unwrap()["kept"].as_bool().unwrap()
        };
        assert!(kept("one winner"), "{name}");
        for (part, claim) in
            [("atomic", "transactions"), ("outbox", "outbox"), ("durable", "durable")]
        {
            assert_eq!(kept(part), claims.iter().any(|one| one == claim), "{name}: {part}");
        }
        assert_eq!(store["compiled_in"], name != "memory", "{name}");
        assert!(store["stated"]["fail_over"]["text"].is_string(), "{name}");
        assert!(store["stated"]["put_back"]["word"].is_string(), "{name}");
    }
}

#[test]
fn a_store_that_is_not_known_is_wrong_usage() {
    let refused = Folder::new().run(&["stores", "oracle"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("postgres-pgbouncer"), "{}", stderr(&refused));
}
