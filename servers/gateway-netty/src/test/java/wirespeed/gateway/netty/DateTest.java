// The form of the date that responses carry.
package wirespeed.gateway.netty;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.time.ZoneOffset;
import java.time.ZonedDateTime;
import org.junit.jupiter.api.Test;

class DateTest {
    @Test
    void the_day_of_the_month_has_two_digits() {
        ZonedDateTime early = ZonedDateTime.of(2026, 11, 3, 7, 8, 9, 0, ZoneOffset.UTC);
        assertEquals("Tue, 03 Nov 2026 07:08:09 GMT", Loop.IMF_FIXDATE.format(early));
    }
}
