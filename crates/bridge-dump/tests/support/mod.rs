//! A checker for as much of JSON Schema as `schema/dump.schema.json` uses. A keyword that it does not know fails the test.

use serde_json::{Map, Value};

/// Words without a meaning for validity.
const NOTES: [&str; 4] = ["$schema", "title", "description", "$defs"];

/// Fails the test at the first place where `value` is not as `schema` says.
#[track_caller]
pub fn assert_valid(schema: &Value, value: &Value) {
    if let Err(why) = check(schema, schema, value, "") {
        panic!("{why}\n{value:#}");
    }
}

pub fn is_valid(schema: &Value, value: &Value) -> bool {
    check(schema, schema, value, "").is_ok()
}

fn check(root: &Value, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    let rules = schema.as_object().expect("a schema is an object");
    for (keyword, rule) in rules {
        let holds = match keyword.as_str() {
            word if NOTES.contains(&word) => true,
            "$ref" => {
                let path = rule.as_str().and_then(|path| path.strip_prefix('#')).expect("a local reference");
                check(root, root.pointer(path).expect("what is referred to"), value, at)?;
                true
            }
            "type" => match rule {
                Value::Array(types) => types.iter().any(|name| is_of(value, name)),
                name => is_of(value, name),
            },
            "const" => rule == value,
            "enum" => rule.as_array().expect("a list").contains(value),
            "minimum" => whole(value).is_none_or(|number| number >= whole(rule).expect("a number")),
            "maximum" => whole(value).is_none_or(|number| number <= whole(rule).expect("a number")),
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    check(root, rule, item, &format!("{at}/{index}"))?;
                }
                true
            }
            "properties" => members(root, rule.as_object().expect("an object"), value, at)?,
            "required" => value.as_object().is_none_or(|members| {
                rule.as_array().expect("a list").iter().all(|name| members.contains_key(name.as_str().expect("a name")))
            }),
            "additionalProperties" => {
                assert_eq!(rule, &Value::Bool(false), "nothing else is understood");
                let known = rules["properties"].as_object().expect("an object");
                value.as_object().is_none_or(|members| members.keys().all(|name| known.contains_key(name)))
            }
            other => panic!("the schema has a keyword that this test does not know: {other}"),
        };
        if !holds {
            return Err(format!("at {at}/: {value} does not keep to {keyword} {rule}"));
        }
    }
    Ok(())
}

fn members(root: &Value, rules: &Map<String, Value>, value: &Value, at: &str) -> Result<bool, String> {
    for (name, member) in value.as_object().into_iter().flatten() {
        if let Some(rule) = rules.get(name) {
            check(root, rule, member, &format!("{at}/{name}"))?;
        }
    }
    Ok(true)
}

fn is_of(value: &Value, name: &Value) -> bool {
    match name.as_str().expect("the name of a type") {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("not a type that this test knows: {other}"),
    }
}

fn whole(value: &Value) -> Option<i128> {
    value.as_u64().map(i128::from).or_else(|| value.as_i64().map(i128::from))
}
