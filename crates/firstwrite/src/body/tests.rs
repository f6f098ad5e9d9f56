//! What a body says about itself.

use http_body_util::Full;

use super::*;

fn prefixed(prefix: &[&'static str], rest: &'static str) -> ResponseBody {
    let rest = ResponseBody::passed(Full::from(Bytes::from(rest)));
    ResponseBody::prefixed(prefix.iter().map(|piece| Bytes::from(*piece)).collect(), rest)
}

#[tokio::test]
async fn a_prefix_and_the_rest_are_the_whole() {
    let body = prefixed(&["ab", "c"], "def");
    assert_eq!(body.size_hint().exact(), Some(6));
    assert!(!body.is_end_stream());
    assert_eq!(body.collect().await.unwrap().to_bytes(), "abcdef");
    assert!(prefixed(&[], "").is_end_stream());
}

#[tokio::test]
async fn a_body_within_the_cap_is_joined_and_one_beyond_it_is_not_lost() {
    let whole = gather(prefixed(&["ab"], "cd"), 4).await.unwrap();
    assert!(matches!(whole, Gathered::Whole(bytes) if bytes == "abcd"));
    let over = gather(prefixed(&["ab", "cd"], "ef"), 3).await.unwrap();
    let Gathered::Over { prefix, rest } = over else { panic!("it is over the cap") };
    let again = ResponseBody::prefixed(prefix, rest);
    assert_eq!(again.collect().await.unwrap().to_bytes(), "abcdef");
}

#[tokio::test]
async fn an_empty_body_is_empty() {
    assert_eq!(read(Full::<Bytes>::default(), 0).await.unwrap(), "");
    assert!(ResponseBody::whole(Bytes::new()).is_end_stream());
}
