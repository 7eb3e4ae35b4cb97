//! Values of every type from the tree, and the kind and path of each error.

use serde::Deserialize;
use serde_json::Value;

use super::parser::{any_json, to_serde_value};
use crate::json::deserialize::{DeserializeErrorKind, from_node, non_null, nullable};
use crate::json::{JsonPath, parse};

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Color {
    DarkRed,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Item {
    count: u8,
    #[serde(deserialize_with = "nullable")]
    ratio: Option<f64>,
    #[serde(default, deserialize_with = "non_null")]
    color: Option<Color>,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Order {
    items: Vec<Item>,
    #[serde(default)]
    swarm: Option<crate::ids::SwarmId>,
}

fn read<'t, T: for<'de> Deserialize<'de>>(text: &'t str) -> Result<T, (DeserializeErrorKind, String, String)> {
    let node = parse(text).expect("valid JSON");
    from_node(&node, &JsonPath::Root).map_err(|error| (error.kind, error.path, error.problem))
}

#[test]
fn structs_are_read_from_the_tree() {
    let order: Order =
        read(r#"{"items":[{"count":255,"ratio":1,"color":"dark_red"},{"count":0,"ratio":null}],"new":{}}"#)
            .expect("an order");
    let items = [
        Item { count: 255, ratio: Some(1.0), color: Some(Color::DarkRed) },
        Item { count: 0, ratio: None, color: None },
    ];
    assert_eq!((order.items, order.swarm), (items.into(), None));
}

#[test]
fn errors_have_a_kind_and_the_path_of_the_value() {
    use DeserializeErrorKind::{Invalid, MissingField, NumberRange, UnknownField, UnknownVariant, WrongType};
    for (item, kind, path, problem) in [
        (r#"{"ratio":1}"#, MissingField, "items[0].count", "is required and missing"),
        (r#"{"count":1}"#, MissingField, "items[0].ratio", "is required and missing"),
        (r#"{"count":1,"ratio":1,"x\n":1}"#, UnknownField, "items[0].x\\n", "is not a known field"),
        (r#"{"count":"1"}"#, WrongType, "items[0].count", "must be a whole number from 0, found a string"),
        (r#"{"count":-1}"#, WrongType, "items[0].count", "must be a whole number from 0, found `-1`"),
        (r#"{"count":1.0}"#, WrongType, "items[0].count", "must be a whole number from 0, found `1.0`"),
        (r#"{"count":256}"#, NumberRange, "items[0].count", "is too large a number: `256`"),
        (
            r#"{"count":99999999999999999999}"#,
            NumberRange,
            "items[0].count",
            "is too large a number: `99999999999999999999`",
        ),
        (r#"{"ratio":1e999}"#, NumberRange, "items[0].ratio", "is too large a number: `1e999`"),
        (r#"{"color":"blue"}"#, UnknownVariant, "items[0].color", "must be one of `dark_red`, found `blue`"),
        (r#"{"color":null}"#, WrongType, "items[0].color", "must be a string, found null"),
        ("[]", WrongType, "items[0]", "must be an object, found an array"),
        ("null", WrongType, "items[0]", "must be an object, found null"),
    ] {
        let found = read::<Order>(&format!(r#"{{"items":[{item}]}}"#)).expect_err(item);
        assert_eq!(found, (kind, path.to_owned(), problem.to_owned()), "{item}");
    }
    assert_eq!(read::<Order>("{}").map_err(|error| error.1), Err("items".to_owned()));
    let (kind, path, _) = read::<Order>(r#"{"items":[],"swarm":"x"}"#).expect_err("no id");
    assert_eq!((kind, path.as_str()), (Invalid, "swarm"));
}

proptest::proptest! {
    #[test]
    fn any_value_is_read_as_serde_json_reads_it(value in any_json()) {
        let node = parse(&value.to_string()).expect("valid");
        proptest::prop_assert_eq!(from_node::<Value>(&node, &JsonPath::Root), Ok(to_serde_value(&node)));
    }
}
