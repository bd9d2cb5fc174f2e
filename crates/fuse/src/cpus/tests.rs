use super::*;

#[test]
fn lists_are_counted() {
    for (list, number) in [("0\n", 1), ("0-3", 4), ("0-3,8", 5), ("0,2,4-127", 126)] {
        assert_eq!(count(list), Some(number), "{list}");
    }
    for list in ["", "a", "3-1", "0-", "-3", "0-18446744073709551615"] {
        assert_eq!(count(list), None, "{list}");
    }
}
