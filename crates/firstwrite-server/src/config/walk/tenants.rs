//! The sections that say who callers are.

use super::{GATEWAY, Section, USUAL};

const SECRET: &str = "{ text = '0123456789abcdef0123456789abcdef' }";
const DIGEST: &str = "sha256 = '2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b'\n\
                      tenant = 'acme'\n";

pub(super) const SECTIONS: &[Section] = &[
    Section {
        title: "`[gateway.tenants]`",
        header: "[gateway.tenants]",
        needs: "sources = [{ kind = 'authorization' }]\n",
        followed_by: &[GATEWAY],
        settings: &[
            ("anonymous", "['POST /seven']"),
            ("sources", "[{ kind = 'header', tenant = 'x-tenant', peers = ['10.0.0.7'] }]"),
        ],
        ..USUAL
    },
    Section {
        title: "`[[gateway.tenants.sources]]`, `kind = \"authorization\"`",
        header: "[[gateway.tenants.sources]]\nkind = 'authorization'",
        followed_by: &[GATEWAY],
        settings: &[("secret", SECRET), ("accept_changing", "true")],
        ..USUAL
    },
    Section {
        title: "`[[gateway.tenants.sources]]`, `kind = \"jwt\"`",
        header: "[[gateway.tenants.sources]]\nkind = 'jwt'",
        needs: r#"issuer = 'https://id'
audience = 'payments'
algorithms = ['HS256']
jwks = { text = '{"keys":[{"kty":"oct","k":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}]}' }
"#,
        followed_by: &[GATEWAY],
        settings: &[
            ("issuer", "'https://seven'"),
            ("audience", "['seven']"),
            ("algorithms", "['HS384']"),
            ("jwks", "!{ text = '{}' }"),
            ("tenant", "'/org/seven'"),
            ("principal", "'seven'"),
            ("leeway", "'7s'"),
            ("types", "['seven']"),
            ("namespace", "'seven:'"),
        ],
        ..USUAL
    },
    Section {
        title: "`[[gateway.tenants.sources]]`, `kind = \"api-keys\"`",
        header: "[[gateway.tenants.sources]]\nkind = 'api-keys'",
        needs: "table = { text = '2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b acme' }\n",
        followed_by: &[GATEWAY],
        settings: &[
            (
                "keys",
                "[{ sha256 = 'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad', \
                 tenant = 'globex' }]",
            ),
            ("table", "!{ text = 'seven' }"),
            ("accept", "['basic']"),
            ("header", "'x-seven'"),
            ("starts_with", "'seven_'"),
        ],
        ..USUAL
    },
    // The table of keys is not shown: it may be long.
    Section {
        title: "`[[gateway.tenants.sources.keys]]`",
        header: "[[gateway.tenants.sources]]\nkind = 'api-keys'\n[[gateway.tenants.sources.keys]]",
        needs: DIGEST,
        followed_by: &[GATEWAY],
        settings: &[("sha256", "!'seven'"), ("tenant", "!''"), ("principal", "!''")],
        ..USUAL
    },
    Section {
        title: "`[[gateway.tenants.sources]]`, `kind = \"header\"`",
        header: "[[gateway.tenants.sources]]\nkind = 'header'",
        needs: "tenant = 'x-tenant'\npeers = ['10.0.0.1']\n",
        followed_by: &[GATEWAY],
        settings: &[
            ("tenant", "'x-seven'"),
            ("principal", "'x-seven'"),
            ("peers", "['10.0.0.7']"),
            ("namespace", "'seven:'"),
        ],
        ..USUAL
    },
    Section {
        title: "`[[gateway.tenants.sources]]`, `kind = \"certificate\"`",
        header: "[[gateway.tenants.sources]]\nkind = 'certificate'",
        needs: "tenant = 'uri'\n",
        followed_by: &[GATEWAY],
        settings: &[("tenant", "'dns'"), ("principal", "'common-name'"), ("namespace", "'seven:'")],
        ..USUAL
    },
];
