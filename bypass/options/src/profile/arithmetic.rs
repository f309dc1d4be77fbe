//! `$(( … ))` over whole numbers: + − * / % and brackets, as profiles use them.

/// Brackets and signs in a row; bounds the recursion.
const DEPTH_MAX: usize = 32;

struct Formula<'a> {
    letters: std::iter::Peekable<std::str::Chars<'a>>,
    variable: &'a dyn Fn(&str) -> Result<String, String>,
}

/// The value of a formula; names stand for variables with or without a dollar.
pub(super) fn value(
    formula: &str,
    variable: &dyn Fn(&str) -> Result<String, String>,
) -> Result<i64, String> {
    let mut formula = Formula {
        letters: formula.chars().peekable(),
        variable,
    };
    let value = formula.sum(0)?;
    match formula.next_mark() {
        None => Ok(value),
        Some(letter) => Err(format!("unexpected {letter:?} in arithmetic")),
    }
}

impl Formula<'_> {
    fn next_mark(&mut self) -> Option<char> {
        while self
            .letters
            .next_if(|letter| letter.is_whitespace())
            .is_some()
        {}
        self.letters.peek().copied()
    }

    fn sum(&mut self, depth: usize) -> Result<i64, String> {
        let mut total = self.product(depth)?;
        while let Some(mark @ ('+' | '-')) = self.next_mark() {
            self.letters.next();
            let right = self.product(depth)?;
            let result = if mark == '+' {
                total.checked_add(right)
            } else {
                total.checked_sub(right)
            };
            total = result.ok_or("arithmetic overflows 64 bits")?;
        }
        Ok(total)
    }

    fn product(&mut self, depth: usize) -> Result<i64, String> {
        let mut total = self.factor(depth)?;
        while let Some(mark @ ('*' | '/' | '%')) = self.next_mark() {
            self.letters.next();
            let right = self.factor(depth)?;
            let result = match mark {
                '*' => total.checked_mul(right),
                '/' => total.checked_div(right),
                _ => total.checked_rem(right),
            };
            total = result.ok_or("arithmetic divides by zero or overflows 64 bits")?;
        }
        Ok(total)
    }

    fn factor(&mut self, depth: usize) -> Result<i64, String> {
        if depth > DEPTH_MAX {
            return Err("arithmetic is nested too deeply".to_owned());
        }
        match self.next_mark() {
            Some('(') => {
                self.letters.next();
                let value = self.sum(depth + 1)?;
                match self.next_mark() {
                    Some(')') => {
                        self.letters.next();
                        Ok(value)
                    }
                    _ => Err("a bracket in arithmetic is not closed".to_owned()),
                }
            }
            Some('-') => {
                self.letters.next();
                let value = self.factor(depth + 1)?;
                value
                    .checked_neg()
                    .ok_or_else(|| "arithmetic overflows 64 bits".to_owned())
            }
            Some(letter) if letter.is_ascii_digit() => self.number(),
            Some('$') => {
                self.letters.next();
                self.letters.next_if_eq(&'{');
                let value = self.named()?;
                self.letters.next_if_eq(&'}');
                Ok(value)
            }
            Some(letter) if letter.is_ascii_alphabetic() || letter == '_' => self.named(),
            Some(letter) => Err(format!("unexpected {letter:?} in arithmetic")),
            None => Err("arithmetic ends too early".to_owned()),
        }
    }

    fn number(&mut self) -> Result<i64, String> {
        let mut digits = String::new();
        while let Some(digit) = self.letters.next_if(char::is_ascii_alphanumeric) {
            digits.push(digit);
        }
        digits
            .parse()
            .map_err(|_| format!("invalid number {digits:?}"))
    }

    fn named(&mut self) -> Result<i64, String> {
        let mut name = String::new();
        let is_name = |letter: &char| letter.is_ascii_alphanumeric() || *letter == '_';
        while let Some(letter) = self.letters.next_if(is_name) {
            name.push(letter);
        }
        let text = (self.variable)(&name)?;
        text.trim()
            .parse()
            .map_err(|_| format!("${name}: invalid number {text:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(formula: &str) -> Result<i64, String> {
        value(formula, &|name| match name {
            "workers" => Ok("4".to_owned()),
            _ => Err(format!("${name} is not set")),
        })
    }

    #[test]
    fn the_usual_order_of_operations_holds() {
        assert_eq!(of("2 + 3 * 4"), Ok(14));
        assert_eq!(of("(2+3)*4 - 10/3"), Ok(17));
        assert_eq!(of("-7 % 4"), Ok(-3));
        assert_eq!(of("400000 / $workers + workers*${workers}"), Ok(100_016));
    }

    #[test]
    fn wrong_formulas_are_errors_not_numbers() {
        for formula in [
            "",
            "1/0",
            "2 +",
            "(1",
            "1 2",
            "9223372036854775807+1",
            "other",
            "0x1z",
        ] {
            assert!(of(formula).is_err(), "{formula}");
        }
        assert!(of(&"(".repeat(10_000)).is_err());
        assert!(of(&"-".repeat(10_000)).is_err());
    }
}
