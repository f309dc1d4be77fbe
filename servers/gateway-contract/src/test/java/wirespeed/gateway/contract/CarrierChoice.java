// Which carrier a contract runs on.
package wirespeed.gateway.contract;

import java.util.Map;
import wirespeed.gateway.runtime.Launcher;

interface CarrierChoice {
    Launcher.Factory factory();

    /** Options that make this carrier the wanted one. */
    Map<String, Object> options();
}
