//! Each setting of each source, with whether another value of it can name the same caller otherwise.

use super::super::Tenants;
use super::super::settings::Settings;

/// Names and places of callers under these settings.
fn naming(settings: &str) -> (Vec<String>, Vec<String>) {
    let parsed: Settings = toml::from_str(settings).unwrap_or_else(|it| panic!("{settings}: {it}"));
    let tenants = Tenants::new(&parsed, || std::time::UNIX_EPOCH);
    let tenants = tenants.unwrap_or_else(|it| panic!("{settings}: {it}"));
    (tenants.naming(true), tenants.places())
}

/// A setting of a source: its name, and two values.
struct Row {
    setting: &'static str,
    values: [&'static str; 2],
    names_tenants: bool,
}

const fn names(setting: &'static str, one: &'static str, other: &'static str) -> Row {
    Row { setting, values: [one, other], names_tenants: true }
}

const fn admits(setting: &'static str, one: &'static str, other: &'static str) -> Row {
    Row { setting, values: [one, other], names_tenants: false }
}

const SECRETS: [&str; 2] = [
    "{ text = '0123456789abcdef0123456789abcdef' }",
    "{ text = 'fedcba9876543210fedcba9876543210' }",
];
const JWKS: [&str; 2] = [
    r#"{ text = '{"keys":[{"kty":"oct","k":"MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWYwMTIzNDU2Nzg5YWJjZGVm"}]}' }"#,
    r#"{ text = '{"keys":[{"kty":"oct","k":"ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTBmZWRjYmE5ODc2NTQzMjEw"}]}' }"#,
];
const KEYS: [&str; 2] = [
    "[{ sha256 = 'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad', tenant = 'a' }]",
    "[{ sha256 = 'ca7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad', tenant = 'a' }]",
];
const TABLES: [&str; 2] = [
    "{ text = 'da7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad a' }",
    "{ text = 'ea7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad a' }",
];

type Source = (&'static str, &'static str, &'static [Row]);

/// Kind, type of the settings, what every source of the kind needs, and the settings.
const SOURCES: [Source; 6] = [
    ("single", "SingleSettings", &[]),
    (
        "authorization",
        "AuthorizationSettings",
        &[
            names("secret", SECRETS[0], SECRETS[1]),
            // Other credentials are refused, and asked of no other source.
            admits("accept_changing", "false", "true"),
        ],
    ),
    (
        "jwt",
        "JwtSettings",
        &[
            names("issuer", "'a'", "'b'"),
            // A token of a known issuer that does not hold is refused.
            admits("audience", "'a'", "['a', 'b']"),
            admits("algorithms", "['HS256']", "['HS256', 'HS384']"),
            admits("jwks", JWKS[0], JWKS[1]),
            names("tenant", "'sub'", "'/org'"),
            names("principal", "'sub'", "'/user'"),
            admits("leeway", "'30s'", "'1m'"),
            admits("types", "['JWT']", "['at+jwt']"),
            names("namespace", "'a:'", "'b:'"),
        ],
    ),
    (
        "api-keys",
        "ApiKeySettings",
        &[
            // An unknown key is refused. A key that is given to another tenant is not noticed: the documentation
            // says so.
            admits("keys", KEYS[0], KEYS[1]),
            admits("table", TABLES[0], TABLES[1]),
            names("accept", "['bearer']", "['bearer', 'basic']"),
            names("header", "'x-key'", "'x-api-key'"),
            names("starts_with", "'sk_'", "'sk_live_'"),
        ],
    ),
    (
        "header",
        "HeaderSettings",
        &[
            names("tenant", "'x-tenant'", "'x-org'"),
            names("principal", "'x-user'", "'x-login'"),
            names("peers", "['10.0.0.1']", "['10.0.0.2']"),
            names("namespace", "'a:'", "'b:'"),
        ],
    ),
    (
        "certificate",
        "CertificateSettings",
        &[
            names("tenant", "'uri'", "'dns'"),
            names("principal", "'uri'", "'dns'"),
            names("namespace", "'a:'", "'b:'"),
        ],
    ),
];

/// The settings that the code declares for a source.
fn declared(kind: &str) -> Vec<&'static str> {
    let code = include_str!("../settings.rs");
    let (_, code) = code.split_once(&format!("pub struct {kind} {{")).unwrap();
    let (code, _) = code.split_once('}').unwrap();
    let fields = code.lines().filter_map(|line| line.strip_prefix("    pub "));
    fields.filter_map(|line| Some(line.split_once(':')?.0)).collect()
}

fn source(kind: &str, rows: &[Row], changed: Option<&str>) -> String {
    let set = rows.iter().map(|Row { setting, values, .. }| {
        let value = values[usize::from(changed == Some(*setting))];
        format!(", {setting} = {value}")
    });
    format!("anonymous = true\nsources = [{{ kind = '{kind}'{} }}]", set.collect::<String>())
}

#[test]
fn each_setting_of_each_source_is_known_to_name_tenants_or_not_to() {
    for (kind, settings, rows) in SOURCES {
        let placed: Vec<_> = rows.iter().map(|row| row.setting).collect();
        assert_eq!(placed, declared(settings), "{kind}: place the settings in this table");
        // Everybody is one tenant, and nobody is anonymous.
        if kind == "single" {
            continue;
        }
        let usual = naming(&source(kind, rows, None));
        for Row { setting, names_tenants, .. } in rows {
            let other = naming(&source(kind, rows, Some(setting)));
            assert_eq!(other != usual, *names_tenants, "{kind}: {setting}: {other:?}");
        }
    }
}

#[test]
fn addresses_of_proxies_count_where_a_caller_from_elsewhere_is_somebody_else() {
    let header =
        |peer: &str| format!("{{ kind = 'header', tenant = 'x-tenant', peers = ['{peer}'] }}");
    let sources = |before: &str, peer, after: &str, anonymous: &str| {
        naming(&format!("anonymous = {anonymous}\nsources = [{before}{}{after}]", header(peer)))
    };
    let authorization = ", { kind = 'authorization' }";
    let certificate = "{ kind = 'certificate', tenant = 'uri' }, ";
    for (before, after, anonymous, counts) in [
        ("", "", "false", false),
        (certificate, "", "false", false),
        ("", authorization, "false", true),
        ("", "", "true", true),
        ("", "", "['POST /sign-up']", true),
    ] {
        let one = sources(before, "10.0.0.1", after, anonymous);
        let other = sources(before, "10.0.0.2", after, anonymous);
        assert_eq!(one != other, counts, "{one:?} {other:?}");
    }
    let two = |peers: &str| {
        naming(&format!(
            "anonymous = true\nsources = [{{ kind = 'header', tenant = 'X-Tenant', peers = {peers} }}]"
        ))
    };
    assert_eq!(two("['10.0.0.1', '10.0.0.2']"), two("['10.0.0.2', '10.0.0.1']"));
}

#[test]
fn names_of_headers_are_one_in_any_case_and_no_secret_is_shown() {
    let header = "sources = [{ kind = 'header', tenant = 'X-Tenant', peers = ['10.0.0.1'] }]";
    assert_eq!(naming(header).0, ["header x-tenant"]);
    let keyed = format!("sources = [{{ kind = 'authorization', secret = {} }}]", SECRETS[0]);
    assert!(!naming(&keyed).0[0].contains("0123"), "{keyed}");
    let open = "sources = [{ kind = 'authorization', accept_changing = true }]";
    assert_eq!(naming(open), (vec!["authorization".to_owned()], vec![]));
}
