//! What an application's role needs, and that no search path changes what the functions do.

use super::{completing, enqueuing, in_schema, reserving};

/// The grants of docs/sql.md, word for word.
fn documented_grants() -> Vec<String> {
    let page = include_str!("../../../../../docs/sql.md");
    let block = page.split("```sql\n-- grants\n").nth(1).expect("the page has a block of grants");
    let block = block.split("```").next().expect("the block ends");
    block.split(';').map(str::trim).filter(|grant| !grant.is_empty()).map(str::to_owned).collect()
}

#[tokio::test]
async fn a_role_with_the_documented_grants_can_call_every_function() {
    in_schema(async |schema| {
        let (admin, session) = (schema.connect().await, schema.connect().await);
        let role = format!("role_{}", schema.name);
        admin.run(&format!("CREATE ROLE {role}")).await;
        for grant in documented_grants() {
            admin.run(&grant.replace("my_application", &role)).await;
        }
        admin.run(&format!("GRANT SELECT, UPDATE ON firstwrite.test_clock TO {role}")).await;
        session.run(&format!("SET ROLE {role}")).await;
        let fence = session.reserve("k").await;
        session.run(&format!("SELECT firstwrite.renew('acme', 'k', {fence})")).await;
        session.run(&format!("SELECT firstwrite.mark_uncertain('acme', 'k', {fence})")).await;
        session.run(&enqueuing("k", fence)).await;
        session.run(&completing("k", fence, "first")).await;
        session.run("SELECT * FROM firstwrite.status('acme', 'k')").await;
        session.run("SELECT * FROM firstwrite.keys").await;
        session.pass(std::time::Duration::from_hours(25)).await;
        let fence = session.reserve("k").await;
        session.run(&format!("SELECT firstwrite.release('acme', 'k', {fence})")).await;
        let forbidden = session.code("UPDATE firstwrite.endings SET outcome = ''").await;
        assert_eq!(forbidden, "42501", "an outcome is nobody's to change");
        admin.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
    })
    .await;
}

#[tokio::test]
async fn no_search_path_changes_what_the_functions_do() {
    in_schema(async |schema| {
        let session = schema.connect().await;
        session
            .run(
                "CREATE TABLE firstwrite.pg_class (oid int);
                 CREATE FUNCTION firstwrite.length(bytea) RETURNS int LANGUAGE sql RETURN 7;
                 CREATE FUNCTION firstwrite.sha256(bytea) RETURNS bytea LANGUAGE sql RETURN '\\x00'::bytea;
                 CREATE TEMPORARY TABLE records (id int)",
            )
            .await;
        for path in ["''", &format!("{}, pg_catalog", schema.name)] {
            session.run(&format!("SET search_path = {path}")).await;
            let key = format!("k-{}", path.len());
            let reserve = reserving(&key).replace("sha256(", "pg_catalog.sha256(");
            let fence = session.row(&reserve).await[1].clone().unwrap().parse().unwrap();
            session.run(&completing(&key, fence, "first")).await;
            assert_eq!(session.row(&reserve).await[0].as_deref(), Some("replay"));
        }
    })
    .await;
}
