//! The config file and the addresses in it, given arbitrary bytes: see `firstwrite_testkit::fuzz`.

use firstwrite_testkit::fuzz::drive;

use super::{File, StoreUrl};

#[test]
fn no_config_file_makes_it_panic() {
    let examples: [&[u8]; 3] = [
        b"store = 'sqlite:a.db'\n[gateway]\nupstreams = ['http://127.0.0.1:9']\n[[gateway.operations]]\n\
          operation = 'POST /payments'\nretention = '72h'\n",
        b"[destinations.provider]\nkind = 'http'\nurl = 'https://a/b'\ndedupe_for = '24h'\n",
        b"[gateway.tenants]\nanonymous = true\n[[gateway.tenants.sources]]\nkind = 'jwt'\n",
    ];
    drive(("config", |bytes| drop(std::str::from_utf8(bytes).map(File::parse))), &examples);
}

#[test]
fn no_address_makes_it_panic() {
    let examples: [&[u8]; 4] = [
        b"postgres://app:swordfish@db/shop?schema=a",
        b"mysql://app:swordfish@db/shop",
        b"redis://:swordfish@cache/0",
        b"sqlite:a.db?b=c",
    ];
    drive(("store_url", read), &examples);
}

fn read(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(url) = text.parse::<StoreUrl>() {
        drop(url.to_string());
    }
}
