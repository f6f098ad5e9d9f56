//! Tests that addresses are read, refused without repeating them, and shown without their passwords.

use super::*;

static PRODUCT: Product =
    Product { name: "Test", schemes: &["test"], port: 7, form: "test://HOST" };

fn parse(url: &str) -> Result<Address, OpenError> {
    Address::parse(url, &PRODUCT)
}

#[test]
fn an_address_is_taken_apart_and_shown_without_its_password() {
    let address = parse("test://p%20y:p%40@ss:@one:1,[::1]:2,%2Fthree/a%20b?x=%26&y&z=").unwrap();
    assert_eq!(address.user.as_deref(), Some("p y"));
    assert_eq!(address.password.as_deref(), Some("p@@ss:"), "the last @ ends it");
    assert_eq!(address.hosts[2], Host { name: "/three".to_owned(), port: 7 });
    assert_eq!(address.parameters().collect::<Vec<_>>(), [("x", "&"), ("y", ""), ("z", "")]);
    for shown in [format!("{address:?}"), address.to_string()] {
        assert_eq!(shown, "test://p y@one:1,[::1]:2,/three:7/a b");
    }
    assert!(parse("test:///a").unwrap().hosts.is_empty());
}

#[test]
fn what_cannot_be_read_is_refused_without_repeating_it() {
    for url in [
        "test:secret",
        "secret://h",
        "test://h:secret",
        "test://h,:1/secret",
        "test://[::1/secret",
        "test://u:secret%zz@h",
        "test://h/secret%2",
        "test://h?secret=%ff",
        "test://u:1@x/u:secret@h",
        "test://u:1?u:secret@h/d",
    ] {
        let error = parse(url).unwrap_err();
        assert!(error.to_string().ends_with("; write test://HOST"), "{error}");
        assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
    }
}

/// Reads an address of a product, and shows what was read.
type Read = fn(&str) -> Result<String, OpenError>;

/// The readers of this build, each with its scheme, an address and how it is shown, and with those that it refuses.
type Row = (&'static str, Read, [&'static str; 2], &'static [&'static str]);

const ROWS: &[Row] = &[
    #[cfg(feature = "postgres")]
    (
        "postgres://",
        crate::postgres::show_address,
        ["pay:secret@one:1,two:2/shop?schema=keys", "pay@one:1,two:2/shop?schema=keys"],
        &[
            "h/db?schema=Robert'",
            "h/db?schema=1st",
            "h/db?schema=",
            "h/db?pooler=session",
            "h/db?a'b=1",
            "/db",
        ],
    ),
    #[cfg(feature = "mysql")]
    (
        "mysql://",
        crate::mysql::show_address,
        ["pay:secret@one:1,[::1]:2/shop", "pay@one:1,[::1]:2/shop"],
        &["h", "h/", "/db", "h/db?sslmode=maybe", "a:secret@h"],
    ),
    #[cfg(feature = "redis")]
    (
        "redis://",
        crate::redis::show_address,
        ["pay:secret@a:7000,c/2?prefix=shop", "pay@a:7000,c:6379/2?prefix=shop"],
        &["h/secret", "h?secret=1&x", "h?prefix=se{cret", "h?wait_aof=secret", "h?prefix=", ""],
    ),
];

/// Addresses that no product reads.
const UNREADABLE: [&str; 11] = [
    "h:70000/db",
    "h,/db",
    "[::1/db",
    "h/%2",
    "h/db?sslrootcert=%2",
    "h/db?sslrootcert=/a.pem&sslmode=prefer",
    "h/db?unknown=1",
    "h/db?fail_over=maybe",
    "a:secret@h:x/db",
    "a:1@x/a:secret@h/db",
    "a:1?a:secret@h/db",
];

#[test]
fn every_product_refuses_what_cannot_be_meant_and_shows_no_password() {
    for (scheme, read, [url, shown], refused) in ROWS {
        let shown = format!("{scheme}{shown}");
        let read = |rest: &str| read(&format!("{scheme}{rest}"));
        assert!(read(url).unwrap().starts_with(&shown) && !read(url).unwrap().contains("secret"));
        for wrong in UNREADABLE.iter().chain(*refused) {
            let error = read(wrong).unwrap_err();
            let repeats = format!("{error} {error:?}").contains("secret");
            // The name of a parameter is repeated.
            assert!(!repeats || wrong.contains("?secret"), "{error:?}");
        }
    }
}
