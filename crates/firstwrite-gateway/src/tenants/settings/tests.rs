//! The settings as they stand in a file.

use std::time::SystemTime;

use super::*;
use crate::tenants::Tenants;

#[derive(Debug, Deserialize)]
struct File {
    gateway: Gateway,
}

#[derive(Debug, Deserialize)]
struct Gateway {
    tenants: Settings,
}

fn parse(text: &str) -> Result<Settings, String> {
    let file: File = toml::from_str(text).map_err(|error| error.message().to_owned())?;
    Ok(file.gateway.tenants)
}

/// The example in `docs/tenants.md`.
fn example() -> &'static str {
    let page = include_str!("../../../../../docs/tenants.md");
    let (_, rest) = page.split_once("```toml\n").expect("the page has an example");
    rest.split_once("```").expect("the example ends").0
}

#[test]
fn the_example_of_the_page_is_read_whole() {
    let mut settings = parse(example()).unwrap();
    let mut names = Vec::new();
    let read = |name: &str| {
        names.push(name.to_owned());
        Ok::<_, ()>(match name {
            "jwks.json" => r#"{"keys":[{"kty":"OKP","crv":"Ed25519",
                "x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#
                .to_owned(),
            "api-keys.txt" => {
                let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
                format!("{digest} acme ci\n")
            }
            _ => "0123456789abcdef0123456789abcdef".to_owned(),
        })
    };
    settings.read_files(read).unwrap();
    assert_eq!(names, ["jwks.json", "api-keys.txt", "tenants.secret"]);
    assert_eq!(settings.sources.len(), 5);
    let expected = BTreeSet::from(["POST /sign-up".to_owned()]);
    assert_eq!(settings.anonymous, Anonymous::Operations(expected));
    let Source::Jwt(jwt) = &settings.sources[1] else { panic!("the second is jwt") };
    assert_eq!((jwt.leeway, jwt.tenant.as_str()), (Duration::from_secs(30), "/org/id"));
    let tenants = Tenants::new(&settings, || SystemTime::UNIX_EPOCH).unwrap();
    let names: Vec<&str> = tenants.trusted_headers().map(http::HeaderName::as_str).collect();
    assert_eq!(names, ["x-tenant", "x-user"]);
}

#[test]
fn what_is_not_given_is_the_careful_choice() {
    let settings = parse("[gateway.tenants]").unwrap();
    assert_eq!(settings.anonymous, Anonymous::Never);
    let nobody = Tenants::new(&settings, || SystemTime::UNIX_EPOCH).unwrap_err().to_string();
    assert!(nobody.contains("at least one source is needed"), "{nobody}");
    let jwt = "[[gateway.tenants.sources]]\nkind = 'jwt'\nissuer = 'i'\naudience = 'a'\n\
               algorithms = ['RS256', 'EdDSA']\njwks = { file = 'f' }";
    let Source::Jwt(jwt) = parse(jwt).unwrap().sources.remove(0) else { panic!("it is jwt") };
    assert_eq!((jwt.tenant.as_str(), jwt.principal.as_str()), ("sub", "sub"));
    assert_eq!(jwt.audience, ["a"]);
    assert_eq!(jwt.types, ["JWT", "at+jwt"]);
    assert_eq!((jwt.leeway, jwt.namespace), (Duration::from_secs(30), None));
    let keys = "[[gateway.tenants.sources]]\nkind = 'api-keys'";
    let Source::ApiKeys(keys) = parse(keys).unwrap().sources.remove(0) else { panic!("keys") };
    assert_eq!((keys.accept, keys.header), (vec![Carrier::Bearer, Carrier::Basic], None));
}

#[test]
fn what_is_not_known_is_refused() {
    let source = |text: &str| format!("[[gateway.tenants.sources]]\n{text}");
    let jwt = "kind = 'jwt'\nissuer = 'i'\naudience = 'a'\njwks = { file = 'f' }\n";
    let cases = [
        ("[gateway.tenants]\nanonymus = true".to_owned(), "unknown field `anonymus`"),
        ("[gateway.tenants]\nanonymous = 'yes'".to_owned(), "expected true, false, or a list"),
        (source("kind = 'password'"), "unknown variant `password`"),
        (source("tenant = 'x'"), "missing field `kind`"),
        (source("kind = 'authorization'\nsalt = 'x'"), "unknown field `salt`"),
        (source("kind = 'header'\ntenant = 'x'\npeers = []\nname = 1"), "unknown field `name`"),
        (source("kind = 'certificate'\ntenant = 'email'"), "unknown variant `email`"),
        (source("kind = 'certificate'\ntenant = 'dns'\nca = 1"), "unknown field `ca`"),
        (source("kind = 'api-keys'\nkey = 1"), "unknown field `key`"),
        (source("kind = 'api-keys'\naccept = ['cookie']"), "unknown variant `cookie`"),
        (source("kind = 'api-keys'\nkeys = [{ sha256 = 'sk_live' }]"), "64 hexadecimal digits"),
        (source(&format!("{jwt}algorithms = ['none']")), "unknown variant `none`"),
        (source(&format!("{jwt}algorithms = ['EdDSA']\nleeway = 30")), "expected a string"),
        (source(&format!("{jwt}algorithms = ['EdDSA']\njku = 'x'")), "unknown field `jku`"),
        (source(&jwt.replace("file = 'f'", "url = 'f'")), "unknown variant `url`"),
        (source(&jwt.replace("file = 'f'", "file = 'f', text = 't'")), "map with a single key"),
    ];
    for (text, expected) in cases {
        let problem = parse(&text).expect_err(&text);
        assert!(problem.contains(expected), "{text}\n{problem}");
        assert!(!problem.contains("sk_live"), "{problem}");
    }
}

#[test]
fn sources_that_do_not_go_together_are_refused() {
    const KEYS: &str = "kind = 'api-keys'\nkeys = [{ sha256 = \
        'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad', tenant = 'acme' }]";
    const JWKS: &str = r#"{"keys":[{"kty":"OKP","crv":"Ed25519",
        "x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;
    let jwt = |issuer: &str, more: &str| {
        format!(
            "kind = 'jwt'\nissuer = '{issuer}'\naudience = 'a'\nalgorithms = ['EdDSA']\n\
             jwks = {{ text = '''{JWKS}''' }}\n{more}"
        )
    };
    let header =
        |more: &str| format!("kind = 'header'\ntenant = 'x-tenant'\npeers = ['::1']\n{more}");
    let check = |sources: &[String], expected: Result<(), &str>| {
        let sources: Vec<String> =
            sources.iter().map(|it| format!("[[gateway.tenants.sources]]\n{it}\n")).collect();
        let text = sources.concat();
        let found = Tenants::new(&parse(&text).unwrap(), || SystemTime::UNIX_EPOCH);
        match (found, expected) {
            (Ok(_), Ok(())) => {}
            (Err(error), Err(expected)) if error.to_string().starts_with(expected) => {}
            (found, _) => panic!("{found:?} instead of {expected:?}\n{text}"),
        }
    };
    let digest = "kind = 'authorization'".to_owned();
    let keys = |more: &str| format!("{KEYS}\n{more}");
    check(&[keys(""), digest.clone()], Ok(()));
    check(&[digest.clone(), digest.clone()], Err("sources[1]: a second source"));
    check(&[keys(""), keys("")], Err("sources[1]: a second source"));
    check(&[digest.clone(), keys("")], Err("sources[1]: api-keys would never be asked"));
    check(&[digest.clone(), jwt("i", "")], Err("sources[1]: jwt would never be asked"));
    check(&[digest, header("")], Ok(()));
    // Tokens and keys in one header.
    check(&[jwt("i", ""), keys("")], Err("sources[1].starts_with: "));
    check(&[keys(""), jwt("i", "")], Err("sources[0].starts_with: "));
    check(&[jwt("i", ""), keys("starts_with = 'ey'")], Err("sources[1].starts_with: "));
    check(&[jwt("i", ""), keys("starts_with = 'sk_'")], Ok(()));
    check(&[jwt("i", ""), keys("accept = ['basic']")], Ok(()));
    // Names that could meet.
    check(&[jwt("i", ""), jwt("j", "namespace = 'j:'")], Err("sources[0].namespace: must be"));
    check(&[jwt("i", "namespace = 'i:'"), jwt("j", "namespace = 'j:'")], Ok(()));
    check(&[jwt("i", "namespace = ''"), jwt("j", "namespace = ''")], Ok(()));
    let overlap = Err("sources[1].namespace: \"j:\" and \"\" overlap");
    check(&[jwt("i", "namespace = ''"), jwt("j", "namespace = 'j:'")], overlap);
    check(&[jwt("i", ""), header("namespace = 'j:'")], overlap);
    check(&[jwt("i", ""), header("")], Ok(()));
    let none = Settings { sources: vec![], ..Settings::single() };
    let problem = Tenants::new(&none, || SystemTime::UNIX_EPOCH).unwrap_err().to_string();
    assert!(problem.starts_with("sources: at least one"), "{problem}");
    for name in ["/sign-up", "POST", "post /sign-up", "POST sign-up", ""] {
        let sources = "sources = [{ kind = 'authorization' }]";
        let text = format!("[gateway.tenants]\n{sources}\nanonymous = [{name:?}]");
        let problem = Tenants::new(&parse(&text).unwrap(), || SystemTime::UNIX_EPOCH).unwrap_err();
        assert!(problem.to_string().starts_with("anonymous: "), "{problem}");
    }
}

#[test]
fn names_that_can_meet_are_noted() {
    let jwt = "kind = 'jwt'\nissuer = 'i'\naudience = 'a'\nalgorithms = ['EdDSA']\njwks = { file = 'f' }\n";
    let spaced = format!("{jwt}namespace = 'i:'\n");
    let keys = "kind = 'api-keys'\n";
    let header = "kind = 'header'\ntenant = 'x-tenant'\npeers = ['::1']\n";
    let digest = "kind = 'authorization'\n";
    let note = |sources: &[&str]| {
        let sources: Vec<String> =
            sources.iter().map(|it| format!("[[gateway.tenants.sources]]\n{it}")).collect();
        parse(&sources.concat()).unwrap().notes().join("\n")
    };
    for alone in [&[jwt][..], &[keys, digest], &[&spaced, keys], &[digest]] {
        assert_eq!(note(alone), "", "{alone:?}");
    }
    assert!(note(&[jwt, keys]).starts_with("jwt, api-keys: "), "{}", note(&[jwt, keys]));
    assert!(note(&[jwt, header, digest]).starts_with("jwt, header: "));
    assert!(note(&[keys, header]).lines().count() == 1);
    assert!(note(&["kind = 'single'\n"]).starts_with("single: everybody"));
}

#[test]
fn debug_shows_no_secret() {
    let settings = parse(
        "[[gateway.tenants.sources]]\nkind = 'authorization'\nsecret = { text = 'canary' }\n\
         [[gateway.tenants.sources]]\nkind = 'api-keys'\nkeys = [{ sha256 = \
         'cafecafecafecafecafecafecafecafecafecafecafecafecafecafecafecafe', tenant = 'acme' }]",
    );
    let shown = format!("{:?}", settings.unwrap());
    assert!(!shown.contains("canary") && !shown.contains("cafe") && !shown.contains("202"));
    assert!(shown.contains("acme") && shown.contains("Text(6 bytes)"), "{shown}");
}
