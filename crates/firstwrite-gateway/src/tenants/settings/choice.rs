//! The choice of a source in one line, as a flag has it.

use std::str::FromStr;

use super::{
    Algorithm, Document, HeaderSettings, JwtSettings, Settings, SettingsError, Source, form,
};

impl Settings {
    /// The choices, each with a line on what it means.
    pub const CHOICES: [(&str, &str); 4] = [
        ("authorization", "each Authorization value is a customer of its own, such as an API key"),
        ("single", "all requests are one customer's: whoever gets here shares keys and answers"),
        (
            "jwt=ISSUER,audience=NAME,algorithm=ALG,jwks=FILE[,tenant=CLAIM]",
            "a claim of a verified token names the customer",
        ),
        ("header=NAME,from=NETWORK", "a header names the customer, set by a proxy of this network"),
    ];
}

/// One of [`Settings::CHOICES`].
impl FromStr for Settings {
    type Err = SettingsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split(',');
        let first = parts.next().unwrap_or_default();
        let (kind, name) = first.split_once('=').unwrap_or((first, ""));
        let mut given = Given::read(kind, parts)?;
        let settings = match (kind, name) {
            ("authorization", "") => Self::authorization(),
            ("single", "") => Self::single(),
            ("jwt", issuer) if !issuer.is_empty() => Self::of(Source::Jwt(JwtSettings {
                issuer: issuer.to_owned(),
                audience: given.some("audience")?,
                algorithms: algorithms(&given.some("algorithm")?)?,
                jwks: Document::File(given.one("jwks")?),
                tenant: given.at_most_one("tenant")?.unwrap_or_else(form::subject),
                principal: form::subject(),
                leeway: form::leeway(),
                types: form::token_types(),
                namespace: None,
            })),
            ("header", header) if !header.is_empty() => Self::of(Source::Header(HeaderSettings {
                tenant: header.to_owned(),
                principal: None,
                peers: given.some("from")?,
                namespace: String::new(),
            })),
            _ => {
                let names = Self::CHOICES.map(|(choice, _)| choice);
                return Err(SettingsError::new("tenants", format!("it is {}", names.join(" | "))));
            }
        };
        given.finish()?;
        Ok(settings)
    }
}

/// Values given after the kind, by name.
struct Given<'a> {
    kind: &'a str,
    pairs: Vec<(&'a str, &'a str)>,
}

impl<'a> Given<'a> {
    fn read(kind: &'a str, parts: impl Iterator<Item = &'a str>) -> Result<Self, SettingsError> {
        let pair = |part: &'a str| {
            let pair = part.split_once('=').filter(|(_, value)| !value.is_empty());
            pair.ok_or_else(|| SettingsError::new(kind, "each part is a name, = and a value"))
        };
        Ok(Self { kind, pairs: parts.map(pair).collect::<Result<_, _>>()? })
    }

    fn take(&mut self, name: &str) -> Vec<String> {
        let (taken, left) = self.pairs.iter().partition(|(given, _)| *given == name);
        self.pairs = left;
        let taken: Vec<(&str, &str)> = taken;
        taken.into_iter().map(|(_, value)| value.to_owned()).collect()
    }

    fn some(&mut self, name: &str) -> Result<Vec<String>, SettingsError> {
        let values = self.take(name);
        if values.is_empty() {
            Err(self.wrong(format!("{name}=… is missing")))
        } else {
            Ok(values)
        }
    }

    fn at_most_one(&mut self, name: &str) -> Result<Option<String>, SettingsError> {
        let mut values = self.take(name);
        match values.len() {
            0 | 1 => Ok(values.pop()),
            _ => Err(self.wrong(format!("{name} stands more than once"))),
        }
    }

    fn one(&mut self, name: &str) -> Result<String, SettingsError> {
        let value = self.at_most_one(name)?;
        value.ok_or_else(|| self.wrong(format!("{name}=… is missing")))
    }

    fn finish(self) -> Result<(), SettingsError> {
        match self.pairs.first() {
            Some((name, _)) => Err(self.wrong(format!("it has no {name}"))),
            None => Ok(()),
        }
    }

    fn wrong(&self, problem: String) -> SettingsError {
        SettingsError::new(self.kind, problem)
    }
}

fn algorithms(names: &[String]) -> Result<Vec<Algorithm>, SettingsError> {
    let parse = |name: &String| {
        let unknown = || SettingsError::new("jwt", format!("algorithm {name:?} is not known"));
        Algorithm::from_name(name).ok_or_else(unknown)
    };
    names.iter().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenants::settings::Anonymous;

    #[test]
    fn each_choice_is_read() {
        let read = |text: &str| {
            let settings: Settings = text.parse().unwrap();
            assert_eq!(settings.anonymous, Anonymous::Never, "{text}");
            settings.sources.into_iter().next().unwrap()
        };
        assert!(matches!(read("single"), Source::Single(_)));
        assert!(matches!(read("authorization"), Source::Authorization(it) if !it.accept_changing));
        let jwt = "jwt=https://id,audience=a,audience=b,algorithm=EdDSA,jwks=k.json,tenant=/org/id";
        let Source::Jwt(jwt) = read(jwt) else { panic!("it is jwt") };
        assert_eq!((jwt.issuer.as_str(), jwt.tenant.as_str()), ("https://id", "/org/id"));
        assert_eq!(
            (jwt.audience, jwt.algorithms),
            (vec!["a".into(), "b".into()], vec![Algorithm::EdDsa])
        );
        assert!(matches!(jwt.jwks, Document::File(name) if name == "k.json"));
        let Source::Header(header) = read("header=x-tenant,from=10.0.0.0/8,from=::1") else {
            panic!("it is header")
        };
        assert_eq!(
            (header.tenant.as_str(), header.peers),
            ("x-tenant", vec!["10.0.0.0/8".into(), "::1".into()])
        );
    }

    #[test]
    fn anything_else_is_refused_with_what_is_missing() {
        let cases = [
            ("", "authorization | single"),
            ("anybody", "authorization | single"),
            ("single=acme", "authorization | single"),
            ("single,from=::1", "it has no from"),
            ("jwt=", "authorization | single"),
            ("jwt=https://id", "audience=… is missing"),
            ("jwt=i,audience=a,algorithm=none,jwks=f", "algorithm \"none\" is not known"),
            ("jwt=i,audience=a,algorithm=ES256,jwks=f,jwks=g", "jwks stands more than once"),
            ("header=x-tenant", "from=… is missing"),
            ("header=x-tenant,from", "a name, = and a value"),
            ("header=x-tenant,from=::1,peers=::1", "it has no peers"),
        ];
        for (text, expected) in cases {
            let said = text.parse::<Settings>().unwrap_err().to_string();
            assert!(said.contains(expected), "{text}: {said}");
        }
    }
}
