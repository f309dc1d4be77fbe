// Hashes of passwords that openssl has made.
package wirespeed.gateway.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

class CryptHashTest {
    private static void check(String password, String hash) {
        CryptHash parsed = CryptHash.parse(hash);
        assertTrue(parsed.isOf(password), hash);
        assertFalse(parsed.isOf(password + "x"), hash);
        assertFalse(parsed.isOf(""), hash);
    }

    @Test
    void hashes_of_openssl_are_those_of_their_passwords() {
        check("Hello world!",
                "$6$saltstring$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjl/O817G3uBnIFNjnQJuesI68u4OTLiBFdcbYEdFCoEOfaS35inz1");
        check("ääääääääääääääääääääääääääääääääääääääää",
                "$6$saltstring$F4cYf9tU/S0xsgL.Ubfp1A7fJUMui1ItOIpJVNZtgcr0zjB1AsULO7rRbSpGMBDwozW1tJh71e5P/XVYcW52G.");
        check("x",
                "$6$abc$K4v3HcZ8yAmpRfxML6S46NCcqy9r4/KdbQpFvqSWsBf4dgySOEOo1DHJTrmn2BsJK2aNmPN8Tfb826D2o9.z51");
        check("pppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppp",
                "$6$0123456789abcdef$A3c.Ts3zgP9uiS.jJfcqxR1qS9gQJ8EMN6SoxqygcTwe0Yhzptibyu0Cnfn87uc8Y7G2TaKZ2kyZVU7FrGdU91");
        check("a longer one with 65 bytes yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy",
                "$6$rounds=1000$s$BHCaattIDcZNRhJjMVAZEiguXOIgXhFc3xZBJe16ixdR7.4n/PCbuxglQJx/gOSW.5N3Gnvlo0BzHB38pZWAn0");
        check("Hello world!",
                "$6$rounds=10000$saltstringsaltst$OW1/O6BYHV6BcXZu8QVeXbDWra3Oeqh0sbHbbMCVNSnCM/UrjmM0Dp8vOuZeHBy/YTBmSK6H9qs/y3RnOaw5v.");
    }

    @Test
    void a_hash_of_another_kind_is_refused() {
        for (String bad : new String[] {"", "secret", "$1$abc$def", "$6$abc$short", "$6$$" + "a".repeat(86),
            "$6$rounds=999999999$abc$" + "a".repeat(86), "$6$abc$" + "!".repeat(86)}) {
            assertNull(CryptHash.parse(bad), bad);
        }
        assertEquals("$6$…", CryptHash.parse("$6$abc$" + "a".repeat(86)).toString());
    }
}
